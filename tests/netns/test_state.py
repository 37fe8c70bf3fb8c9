"""netns.state: the record of a lab and the lock over all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import netns.state
from netns.errors import FabricError
from netns.processes import Process
from netns.state import LabDirectory, LabState, locked, recorded_labs
from netns.topology import reference
from tests.netns.strategies import TOPOLOGIES

PROCESSES = st.none() | st.builds(Process, st.integers(1, 10**6), st.integers(0, 10**9))


@pytest.fixture(autouse=True)
def root(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path_factory.mktemp("labs")
    monkeypatch.setattr(netns.state, "ROOT", directory)
    return directory


@settings(max_examples=30)
@given(
    state=st.builds(
        LabState,
        topology=TOPOLOGIES,
        fabric=st.sampled_from(["kernel", "relay"]),
        reason=st.text(max_size=20),
        phase=st.sampled_from(["coming up", "up", "going down"]),
        namespaces=st.lists(st.text(max_size=8), max_size=3).map(tuple),
        relay=PROCESSES,
        owner=PROCESSES,
        notes=st.lists(st.text(max_size=8), max_size=3).map(tuple),
    )
)
def test_write_read__is_the_same(state: LabState) -> None:
    directory = LabDirectory("demo")
    directory.write(state)
    assert directory.read() == state


def test_read__absent() -> None:
    assert LabDirectory("nope").read() is None
    assert LabDirectory("a/b").read() is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"topology": {}}', "\0"])
def test_read__damaged_bad_flow(root: Path, content: str) -> None:
    (root / "demo").mkdir()
    (root / "demo" / "state.json").write_text(content)
    with pytest.raises(FabricError, match=r"state.json: not a lab's record .* delete its namespaces \(demo-") as caught:
        LabDirectory("demo").read()
    assert "\n" not in str(caught.value)


def test_write__leaves_no_half_record(root: Path) -> None:
    directory = LabDirectory("demo")
    directory.write(LabState(reference(), "relay", "x"))
    directory.write(LabState(reference(), "relay", "y"))
    assert [path.name for path in (root / "demo").iterdir()] == ["state.json"]


def test_recorded_labs__and_remove() -> None:
    for name in ("b", "a"):
        LabDirectory(name).write(LabState(reference(name=name), "relay", "x"))
    assert recorded_labs() == ["a", "b"]
    LabDirectory("a").remove()
    LabDirectory("a").remove()
    assert recorded_labs() == ["b"]


def test_directory__names_the_relays_files(root: Path) -> None:
    directory = LabDirectory("demo")
    files = directory.relay_spec, directory.relay_control, directory.relay_log
    assert [file.relative_to(root / "demo").name for file in files] == ["relay.json", "relay.sock", "relay.log"]


def test_locked__excludes_others_until_released(root: Path) -> None:
    program = (
        "import fcntl, os, sys\n"
        "try: fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except BlockingIOError: sys.exit(3)"
    )

    def attempt() -> int:
        return subprocess.run([sys.executable, "-c", program, str(root)], check=False).returncode

    with locked():
        assert attempt() == 3
    assert attempt() == 0


def test_locked__where_nobody_may_write_bad_flow(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "file").touch()
    monkeypatch.setattr(netns.state, "ROOT", root / "file" / "labs")
    with pytest.raises(FabricError, match="Not a directory; labs are made by root"), locked():
        os.abort()
