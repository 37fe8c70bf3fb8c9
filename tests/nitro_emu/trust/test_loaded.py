"""Which code a measured process loads, in processes of their own."""

from __future__ import annotations

import marshal
import os
import py_compile
import subprocess
import sys
import textwrap
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from nitro_emu.trust.loaded import NO_BYTECODE
from nitro_emu.trust.measure import image_files, is_measured, software_root

HEADER_BYTES = 16  # of bytecode: what it is of
GUARD = """
    from nitro_emu.trust.loaded import LoadGuard
    from nitro_emu.trust.measure import software_root
    refused = []
    LoadGuard(software_root(), on_refused=refused.append)
"""


def run(
    text: str,
    *,
    path: Path | None = None,
    python: str = sys.executable,
    options: Sequence[str] = ("-X", f"pycache_prefix={NO_BYTECODE}"),
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program, with a directory in front of the others that it loads from."""
    searched = os.pathsep.join(map(str, filter(None, (path, software_root()))))
    env = os.environ | dict(variables or {}) | {"PYTHONPATH": searched}
    return subprocess.run(
        [python, *options, "-c", textwrap.dedent(text)], env=env,
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_everything_that_a_card_loads_is_measured_or_distributed(tmp_path: Path) -> None:
    (tmp_path / "stray.py").touch()
    done = run(
        "import nitro_emu.cli, nitro_emu.cli.run, nitro_emu.card.daemon, nitro_emu.card.card"
        + GUARD.replace("\n    ", "\n")
        + textwrap.dedent("""
            import hypothesis, netns.netem.queue, wave  # a distribution's, the image's, the library's: not loaded yet
            try:
                import stray
            except ImportError as error:
                assert refused == [str(error)]
                print(error)
        """),
        path=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"stray is loaded from {tmp_path}/stray.py, which belongs neither to")


@pytest.mark.parametrize(
    ("options", "variables", "place"),
    [
        ([], {}, "__pycache__"),
        ([], {"PYTHONPYCACHEPREFIX": "/nowhere", "PYTHONDONTWRITEBYTECODE": "1"}, "/nowhere"),
        (["-X", "pycache_prefix=/elsewhere", "-B"], {"PYTHONPYCACHEPREFIX": NO_BYTECODE}, "/elsewhere"),
    ],
)
def test_bytecode_from_anywhere_is_refused(options: list[str], variables: dict[str, str], place: str) -> None:
    done = run(GUARD, options=options, variables=variables)
    assert f"TrustError: bytecode is loaded from {place}; start the card with nitro-card run" in done.stderr


def test_what_was_loaded_before_counts(tmp_path: Path) -> None:
    (tmp_path / "stray.py").touch()
    assert "LoadRefusedError: stray is loaded from" in run(f"    import stray{GUARD}", path=tmp_path).stderr


@pytest.mark.parametrize("before", ["", "without_bytecode()"])
def test_a_program_is_started_without_bytecode(tmp_path: Path, before: str) -> None:
    """Bytecode that is not of its source, and has the header that Python looks at."""
    source = tmp_path / "told.py"
    source.write_text("print('a source')\n")
    cached = Path(py_compile.compile(str(source), doraise=True) or "")
    other = marshal.dumps(compile("print('bytecode')", str(source), "exec"))
    cached.write_bytes(cached.read_bytes()[:HEADER_BYTES] + other)
    program = f"from nitro_emu.trust.loaded import without_bytecode\n{before}\nimport told"
    done = run(program, path=tmp_path, options=[])
    assert done.stdout == ("a source\n" if before else "bytecode\n"), done.stderr


def test_a_file_that_lies_loose_among_the_distributions_is_refused(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False, symlinks=True)
    (place,) = tmp_path.glob("lib/python*/site-packages")
    (place / "stray.py").touch()
    python = str(tmp_path / "bin" / "python")
    assert "LoadRefusedError: stray is loaded from" in run(f"{GUARD}    import stray", python=python).stderr
    (place / "stray-1.dist-info").mkdir()
    (place / "stray-1.dist-info" / "METADATA").write_text("Name: stray\nVersion: 1\n")
    (place / "stray-1.dist-info" / "RECORD").write_text("stray.py,,\n")
    assert run(f"{GUARD}    import stray", python=python).returncode == 0


def test_what_is_installed_for_the_user_counts(tmp_path: Path) -> None:
    place = Path(
        run(
            "import site; print(site.getusersitepackages())", variables={"PYTHONUSERBASE": str(tmp_path)}
        ).stdout.strip()
    )
    (place / "mine-1.dist-info").mkdir(parents=True)
    (place / "mine.py").touch()
    (place / "mine-1.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1\n")
    (place / "mine-1.dist-info" / "RECORD").write_text("mine.py,,\n")
    for is_enabled in (True, False):  # a virtual environment has none
        before = f"import site, sys; site.ENABLE_USER_SITE = {is_enabled}; sys.path.append({str(place)!r})"
        done = run(f"    {before}{GUARD}    import mine", variables={"PYTHONUSERBASE": str(tmp_path)})
        assert ("LoadRefusedError: mine is loaded from" in done.stderr) is not is_enabled
        assert done.returncode == (not is_enabled), done.stderr


def test_what_counts_as_measured_is_what_is_measured() -> None:
    files = image_files(software_root())
    assert all(map(is_measured, files))
    assert "netns/base/units.py" in files
    for name in ("stray.py", "tests/conftest.py", "srd/py.typed", "srd/__pycache__/a.pyc", "x.so"):
        assert not is_measured(name)
