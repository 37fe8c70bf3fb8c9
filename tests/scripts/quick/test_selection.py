"""scripts.quick.selection: which tests a changed file asks for, and what counts as changed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts.quick.selection import ALWAYS, changed_files, select, texts_of_tests

ROOT = Path(__file__).resolve().parents[3]
TEXTS = {
    ALWAYS: "",
    "tests/test_packaging.py": 'read("README.md")',
    "tests/conftest.py": "",
    "tests/simulation.py": "from tests.patience import PATIENCE_S",
    "tests/patience.py": "",
    "tests/docs/test_guide.py": "",
    "tests/netns/conftest.py": "from tests.patience import PATIENCE_S",
    "tests/netns/test_units.py": "",
    "tests/netns/lab/test_lab.py": "",
    "tests/scripts/test_setup.py": "",
    "tests/srd/test_endpoint.py": "",
    "tests/srd/test_endpoint_opening.py": "",
    "tests/srd/test_peer.py": "from tests.srd import loopback",
    "tests/srd/loopback.py": "",
    "tests/srd/cli/test_send.py": 'run("-m", "tests.srd.cli.worker")',
    "tests/srd/cli/worker.py": "",
    "tests/srd/io/test_driver.py": "from tests.simulation import run",
    "tests/srd/perf/test_report.py": 'DATA / "iperf3"',
    "tests/srd/proto/test_core.py": "from tests.srd.proto.test_peer import peer",
    "tests/srd/proto/test_peer.py": "",
    "tests/srd/proto/recv/test_receiver.py": 'said_in("srd/PROTOCOL.md")',
}
CORE = ["tests/srd/proto/recv/test_receiver.py", "tests/srd/proto/test_core.py", "tests/srd/proto/test_peer.py"]
SRD = ["tests/srd/test_endpoint.py", "tests/srd/test_endpoint_opening.py", "tests/srd/test_peer.py"]
NETNS = ["tests/netns/lab/test_lab.py", "tests/netns/test_units.py"]
TOP = ["tests/test_packaging.py"]


@pytest.mark.parametrize(
    ("changed", "nearest", "then"),
    [
        ("netns/units.py", ["tests/netns/test_units.py"], []),
        ("netns/lab/plan.py", [], ["tests/netns/lab/test_lab.py"]),
        ("netns/lab/deeper/still.py", [], ["tests/netns/lab/test_lab.py"]),
        ("srd/endpoint.py", SRD[:2], [SRD[2], *CORE]),
        ("srd/end.py", [], [*SRD, *CORE]),
        ("srd/io/driver.py", ["tests/srd/io/test_driver.py"], CORE),
        ("srd/proto/endpoint/core.py", [CORE[1]], [CORE[2], CORE[0]]),
        ("srd/proto/recv/receiver.py", [CORE[0]], CORE[1:]),
        ("srd/cli/send.py", ["tests/srd/cli/test_send.py"], []),
        ("scripts/setup", ["tests/scripts/test_setup.py"], []),
        ("docs/guide/start.md", [], ["tests/docs/test_guide.py"]),
        ("README.md", TOP, []),
        (".gitignore", [], TOP),
        ("srd/PROTOCOL.md", [CORE[0]], [*SRD, *CORE[1:]]),
        ("tests/srd/proto/test_core.py", [CORE[1]], []),
        ("tests/srd/proto/test_peer.py", CORE[1:], []),
        ("tests/srd/proto/test_removed.py", [], []),
        ("tests/srd/loopback.py", ["tests/srd/test_peer.py"], []),
        ("tests/srd/cli/worker.py", ["tests/srd/cli/test_send.py"], []),
        ("tests/patience.py", [*NETNS, "tests/srd/io/test_driver.py"], []),
        ("tests/netns/conftest.py", NETNS, []),
        ("tests/data/iperf3/forward.json", ["tests/srd/perf/test_report.py"], []),
    ],
)  # fmt: skip
def test_select(changed: str, nearest: list[str], then: list[str]) -> None:
    assert select([changed], TEXTS) == [*sorted([ALWAYS, *nearest]), *then]


def test_select__what_is_near_to_one_comes_before_what_is_far_from_another() -> None:
    chosen = select(["srd/proto/endpoint/core.py", "netns/lab/plan.py", "tests/srd/proto/test_peer.py"], TEXTS)
    assert chosen == [*CORE[1:], ALWAYS, "tests/netns/lab/test_lab.py", CORE[0]]


def test_select__of_nothing_is_the_architecture() -> None:
    assert select([], TEXTS) == [ALWAYS]


def test_select__of_this_checkout_are_files_of_tests() -> None:
    texts = texts_of_tests(ROOT)
    chosen = select(["srd/proto/endpoint/core.py", "tests/patience.py", "README.md", "tests/conftest.py"], texts)
    assert all((ROOT / name).is_file() for name in chosen)
    assert set(chosen) == {name for name in texts if name.rpartition("/")[2].startswith("test_")}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two commits of the main branch, and one of its own that is based on the first."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    made = tmp_path / "checkout"
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(made))
    (made / ".gitignore").write_text("ignored.py\n")
    for name in ("kept.py", "edited.py", "removed.py", "committed.py"):
        (made / name).write_text("1\n")
    commit(made)
    git(made, "branch", "own")
    (made / "of_main.py").write_text("1\n")
    commit(made)
    git(made, "switch", "--quiet", "own")
    (made / "committed.py").write_text("2\n")
    commit(made)
    return made


def git(directory: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", directory, *arguments], check=True, capture_output=True)


def commit(directory: Path) -> None:
    git(directory, "add", "--all")
    git(directory, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message", "more")


def change(directory: Path) -> None:
    (directory / "edited.py").write_text("2\n")
    (directory / "removed.py").unlink()
    for name in ("ignored.py", "new with é.py"):
        (directory / name).write_text("1\n")


def test_changed_files__since_the_branch_left_main(checkout: Path) -> None:
    assert changed_files(checkout, None) == ["committed.py"]
    change(checkout)
    assert changed_files(checkout, None) == ["committed.py", "edited.py", "new with é.py", "removed.py"]


def test_changed_files__on_main_and_since_another_base(checkout: Path) -> None:
    git(checkout, "switch", "--quiet", "main")
    assert changed_files(checkout, None) == []
    assert changed_files(checkout, "main~1") == ["of_main.py"]
    change(checkout)
    assert changed_files(checkout, None) == ["edited.py", "new with é.py", "removed.py"]


def test_changed_files__the_origins_main_comes_first(checkout: Path) -> None:
    git(checkout, "update-ref", "refs/remotes/origin/main", "own")
    assert changed_files(checkout, None) == []


def test_changed_files__without_a_main_branch_since_the_last_commit(checkout: Path) -> None:
    git(checkout, "branch", "--move", "main", "trunk")
    change(checkout)
    assert changed_files(checkout, None) == ["edited.py", "new with é.py", "removed.py"]


def test_changed_files__bad_base(checkout: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        changed_files(checkout, "nowhere")
    assert "nowhere" in caught.value.stderr
