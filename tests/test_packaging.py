"""What a release contains: README and all that it names, in the sdist and in share/doc of an environment."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.programs import run_to_end

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def links(document: Path) -> list[Path]:
    """Files that a page links to, relative to the checkout."""
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    return [(document.parent / link).resolve().relative_to(ROOT) for link in found if "://" not in link]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links__name_files(document: Path) -> None:
    for link in links(document):
        assert (ROOT / link).exists(), f"{document}: {link}"


def test_data_files__are_all_that_readme_links_to() -> None:
    """In the same folders as in the checkout, so that relative links work."""
    prefix = "share/doc/open-srd"
    installed = {
        Path(folder.removeprefix(prefix).strip("/"), path.name)
        for folder, patterns in PROJECT["tool"]["setuptools"]["data-files"].items()
        for pattern in patterns
        for path in ROOT.glob(pattern)
    }
    assert {*links(ROOT / "README.md")} <= installed


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project's files."""
    if not (ROOT / ".git").exists():
        pytest.skip("a checkout says which files are the project's")
    source = tmp_path / "source"
    tracked = subprocess.check_output(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, text=True)
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    return source


def test_sdist__has_what_readme_uses(checkout: Path, tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path)]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        inside = {Path(*Path(name).parts[1:]) for name in opened.getnames()}
    wanted = {*(link for document in DOCUMENTS for link in links(document))}
    for package in ("netns", "nitro_emu"):
        wanted |= {path.relative_to(ROOT) for path in (ROOT / package / "examples").glob("*.yaml")}
    wanted |= {
        Path(name) for name in ("Makefile", "scripts/setup", "scripts/demo", "tests/conftest.py", "CITATION.cff")
    }
    assert {path for path in wanted if (ROOT / path).is_file()} <= inside
    with tarfile.open(archive) as opened:
        (name,) = [name for name in opened.getnames() if name.count("/") == 1 and name.endswith("/PKG-INFO")]
        member = opened.extractfile(name)
        assert member is not None
        check_metadata(email.message_from_binary_file(member))


@pytest.mark.long
def test_wheel__is_compiled_in_an_environment_of_its_own(checkout: Path, tmp_path: Path) -> None:
    """As `pip install .` does for a user: with nothing but what the build's requirements name."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(checkout),
    ]
    run_to_end(command, within_s=10 * PATIENCE_S, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "none-any" not in wheel.name
    with zipfile.ZipFile(wheel) as opened:
        assert any(re.fullmatch(r"srd/proto/endpoint/core\..*\.so", name) for name in opened.namelist())


def check_metadata(metadata: Message) -> None:
    """What an index shows: README in which no link leads nowhere, and no more than there is."""
    page = metadata.get_payload()
    assert isinstance(page, str)
    assert page.startswith("# Open SRD\n")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert re.findall(r"\]\((?!\w+://)", page) == []
    assert "security (`docs/security.md`)" in page
    assert not metadata.get_all("Project-URL"), "of a host that exists"
    extras = {extra for extra in metadata.get_all("Provides-Extra") or [] if extra not in {"bench", "test"}}
    assert extras == {*re.findall(r"'\.\[(\w+)\]'", page)}, "README says what each extra is for"


def test_changelog__begins_with_this_version() -> None:
    first = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first is not None
    assert first[1] == PROJECT["project"]["version"]


def test_citation__has_the_version() -> None:
    assert f"version: {PROJECT['project']['version']}\n" in (ROOT / "CITATION.cff").read_text()


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def without(*modules: str) -> str:
    """Return code after which these modules cannot be imported."""
    return f"import sys; sys.modules.update(dict.fromkeys({modules!r})); "


def test_transport__needs_numpy_and_cryptography_only() -> None:
    """What the extras bring, and all that mypyc's own module is for, is not imported by `srd` and `devmem`."""
    extras = (
        "blake3",
        "click",
        "rich",
        "uvloop",
        "xxhash",
        "pydantic",
        "pyroute2",
        "yaml",
        "cbor2",
        "prometheus_client",
        "matplotlib",
    )
    done = run(without(*extras) + "import srd, devmem; srd.Endpoint, srd.EndpointConfig()")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("command", "function", "extra", "missing"),
    [
        ("srd", "srd.command:main", "cli", "click"),
        ("srd", "srd.command:main", "cli", "blake3"),
        ("srd", "srd.command:main", "cli", "xxhash"),
        ("srd-lab", "netns.command:main", "lab", "click"),
        ("nitro-card", "nitro_emu.command:nitro_card", "card", "click"),
        ("nitro-verify", "nitro_emu.command:nitro_verify", "card", "cbor2"),
        ("efa-bw", "nitro_emu.command:efa_bw", "card", "click"),
    ],
)
def test_commands__name_the_extra_that_is_missing(command: str, function: str, extra: str, missing: str) -> None:
    module, _, name = function.partition(":")
    assert PROJECT["project"]["scripts"][command] == function
    done = run(without(missing) + f"sys.argv[1:] = ['--help']; from {module} import {name}; {name}()")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{command}: needs {missing}; install it, in the checkout: pip install '.[{extra}]'\n"


@pytest.mark.parametrize("arguments", [["place", "allreduce", "--topology", "cluster"]])
def test_srd_lab__names_what_a_command_lacks(arguments: list[str]) -> None:
    done = run(without("yaml") + f"sys.argv[1:] = {arguments}; from netns.command import main; main()")
    assert (done.returncode, done.stderr) == (
        1,
        "srd-lab: needs yaml; install it, in the checkout: pip install '.[lab]'\n",
    )


def test_scripts__of_each_command_start() -> None:
    for command, function in PROJECT["project"]["scripts"].items():
        module, _, name = function.partition(":")
        done = run(f"import sys; sys.argv[:] = [{command!r}, '--help']; from {module} import {name}; {name}()")
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout.startswith(f"Usage: {command} ")
