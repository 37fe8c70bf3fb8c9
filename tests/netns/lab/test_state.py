"""netns.lab.state: the record of a lab and the lock over all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import netns.lab.state
from netns.errors import BackendError, TopologyError
from netns.lab.state import LabDirectory, LabState, leftover_directories, locked, recorded_labs
from netns.processes import ProcessIdentity
from netns.topology.model import reference
from tests.netns.strategies import TOPOLOGIES

PROCESSES = st.none() | st.builds(ProcessIdentity, st.integers(1, 10**6), st.integers(0, 10**9))


@pytest.fixture(autouse=True)
def root(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path_factory.mktemp("labs")
    monkeypatch.setattr(netns.lab.state, "ROOT", directory)
    return directory


@settings(max_examples=30)
@given(
    state=st.builds(
        LabState,
        topology=TOPOLOGIES.map(lambda made: replace(made, name="demo")),
        backend=st.sampled_from(["kernel", "relay"]),
        reason=st.text(max_size=20),
        phase=st.sampled_from(["coming up", "up", "going down"]),
        relay=PROCESSES,
        owner=PROCESSES,
        notes=st.lists(st.text(max_size=8), max_size=3).map(tuple),
    )
)
def test_write_read__is_the_same(state: LabState) -> None:
    directory = LabDirectory("demo")
    state = replace(state, namespaces=tuple(f"demo-{node}" for node in state.topology.nodes[: len(state.notes)]))
    directory.write(state)
    assert directory.read() == state


@pytest.mark.parametrize("name", ["../../dir", "..", ".", "", "a/b", "/etc", "a\n", "-a", "x" * 33, "\0"])
def test_name__of_no_lab_is_no_directory_bad_flow(name: str) -> None:
    with pytest.raises(TopologyError, match=r"^name: .* cannot name a lab; use letters"):
        LabDirectory(name)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"topology": reference(name="other")}, "it is of lab other"),
        ({"namespaces": ("demo-h1", "../../etc/x")}, "namespace ../../etc/x is not of its topology"),
        ({"namespaces": ("other-h1",)}, "namespace other-h1 is not of its topology"),
    ],
)
def test_read__objects_of_another_lab_bad_flow(changes: dict[str, Any], reason: str) -> None:
    directory = LabDirectory("demo")
    directory.write(replace(LabState(reference(name="demo"), "relay", "x"), **changes))
    with pytest.raises(BackendError, match=rf"state.json: not a lab's record \({reason}\)"):
        directory.read()


def test_recorded_labs_and_leftovers__are_directories_with_names_of_labs(root: Path, tmp_path: Path) -> None:
    for name in (".hidden", "x" * 33):
        (root / name).mkdir()
    (root / "file").touch()
    (root / "link").symlink_to(tmp_path)
    (root / "left").mkdir()
    (tmp_path / "state.json").touch()
    assert (recorded_labs(), [each.name for each in leftover_directories()]) == ([], ["left"])


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"topology": {}}', "\0"])
def test_read__damaged_bad_flow(root: Path, content: str) -> None:
    (root / "demo").mkdir()
    (root / "demo" / "state.json").write_text(content)
    with pytest.raises(
        BackendError, match=r"state.json: not a lab's record .* delete its namespaces \(demo-"
    ) as caught:
        LabDirectory("demo").read()
    assert "\n" not in str(caught.value)


def test_recorded_labs__and_remove() -> None:
    for name in ("b", "a"):
        LabDirectory(name).write(LabState(reference(name=name), "relay", "x"))
    assert recorded_labs() == ["a", "b"]
    LabDirectory("a").remove()
    LabDirectory("a").remove()
    assert recorded_labs() == ["b"]


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


def test_locked__not_writable_bad_flow(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "file").touch()
    monkeypatch.setattr(netns.lab.state, "ROOT", root / "file" / "labs")
    with pytest.raises(BackendError, match="Not a directory; labs are made by root"), locked():
        os.abort()
