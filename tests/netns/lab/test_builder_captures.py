"""netns.lab.builder: captures of a topology run as long as the lab."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from netns.errors import BackendError, TopologyError
from netns.lab.lab import Lab
from netns.lab.state import LabDirectory
from netns.netem.shape import Shape
from netns.observe.pcapng import PcapngFile
from netns.topology.model import Capture, Topology, leaf_spine
from tests.netns.exchange import PORT, udp_socket
from tests.netns.observe.test_pcapng import blocks

pytestmark = pytest.mark.root


def topology(name: str, path: Path) -> Topology:
    made = leaf_spine(name=name, spines=1, shape=Shape(delay_us=100))
    return replace(made, captures=(Capture("leaf1-spine1", str(path)),))


def test_capture__from_up_to_down(lab_name: str, tmp_path: Path) -> None:
    path = tmp_path / "c.pcapng"
    with Lab.up(topology(lab_name, path), backend="relay") as lab:
        (recorder,) = lab.directory.read().capture_processes  # type: ignore[union-attr]  # the lab is up
        assert recorder.alive
        with udp_socket(lab, "h1") as one, udp_socket(lab, "h2") as two:
            for _ in range(5):
                one.sendto(b"x", (lab.address("h2"), PORT))
                assert two.recv(9) == b"x"
        assert not lab.status()["problems"]
    assert not recorder.alive
    kinds = [kind for kind, _ in blocks(path)]
    assert kinds == [0x0A0D0D0A, 1, 1, *[6] * 5, 5, 5], "interface statistics end a complete file"


@pytest.mark.parametrize("overwrite", [False, True])
def test_capture__over_a_file_of_others_is_refused_before_anything_is_built_bad_flow(
    lab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, overwrite: bool
) -> None:
    path, link = tmp_path / "passwd", tmp_path / "link"
    path.write_text("root:x:0:0")
    link.symlink_to(path)
    monkeypatch.setattr("netns.lab.lab.build", lambda *_: pytest.fail("nothing may be built"))
    for file in (path, link, tmp_path):
        wanted = replace(topology(lab_name, file), captures=(Capture("leaf1-spine1", str(file), overwrite),))
        with pytest.raises(BackendError, match=rf"^{file}: "):
            Lab.up(wanted, backend="relay")
    assert path.read_text() == "root:x:0:0"
    assert LabDirectory(lab_name).read() is None


def test_capture__replaces_an_earlier_one_on_request(lab_name: str, tmp_path: Path) -> None:
    path = tmp_path / "c.pcapng"
    with PcapngFile(path, interfaces=("a>b",) * 5, comment="earlier"):
        pass
    wanted = replace(topology(lab_name, path), captures=(Capture("leaf1-spine1", str(path), overwrite=True),))
    with Lab.up(wanted, backend="relay"):
        pass
    assert [kind for kind, _ in blocks(path)] == [0x0A0D0D0A, 1, 1, 5, 5]


def test_capture__two_in_one_file_bad_flow(tmp_path: Path) -> None:
    path = str(tmp_path / "c")
    with pytest.raises(TopologyError, match=rf"^captures\[1\].file: {path} is given twice; each needs its own$"):
        replace(leaf_spine(), captures=(Capture("leaf1-spine1", path), Capture("leaf2-spine1", path)))
