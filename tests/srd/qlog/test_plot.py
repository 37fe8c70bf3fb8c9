"""srd.qlog.plot: plots of a transfer, of an empty trace, and to invalid paths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import matplotlib.image as mpl_image
import numpy as np
import pytest

from srd.qlog.errors import TraceError
from srd.qlog.plot import PATHS, plot
from srd.qlog.summary import PeerSummary, summarise
from srd.qlog.verdict import worst_paths
from tests.simulation import connected
from tests.srd.qlog.files import Recorder


@pytest.fixture(scope="module")
def peers() -> dict[int, PeerSummary]:
    recorder = Recorder()
    network, number, _ = connected(seed=2, traces={"a": recorder, "b": recorder})
    network.carry_while_links_die(number, length=8 << 20, links={2})
    return summarise(recorder.records)


def test_plot__a_png_with_something_in_each_panel(peers: dict[int, PeerSummary], tmp_path: Path) -> None:
    out = tmp_path / "a.png"
    plot(peers, title="a $ title", out=out)
    pixels = mpl_image.imread(out)
    coloured = np.ptp(pixels[:, :, :3], axis=2) > 0.3
    quarters = np.array_split(coloured, 4)
    assert all(quarter.sum() > 100 for quarter in quarters), [int(quarter.sum()) for quarter in quarters]


def test_plot__the_same_trace_gives_the_same_picture(peers: dict[int, PeerSummary], tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        plot(peers, title="t", out=tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_plot__keys_name_the_paths_that_lost_most(peers: dict[int, PeerSummary], tmp_path: Path) -> None:
    (number,) = (number for number, peer in peers.items() if peer.losses)
    worst = worst_paths(peers[number].sent, most=1)[0]
    with_ports = {**peers, number: replace(peers[number], ports={worst: 40123})}
    with mpl.rc_context({"svg.fonttype": "none"}):
        plot(with_ports, title="t", out=tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert f"path {worst} (port 40123):" in text
    assert "all other paths" in text
    assert text.count("packets lost") <= len(PATHS)
    assert "time since the trace began, s" in text
    assert "round trip, ms" in text


def test_plot__of_nothing(tmp_path: Path) -> None:
    plot({}, title="", out=tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.parametrize("name", ["a", "a.txt", ".png"])
def test_plot__an_unknown_format_bad_flow(name: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"the name ends in none of \.avif|the name ends in none of \.eps"):
        plot({}, title="", out=tmp_path / name)
    assert not (tmp_path / name).exists()


def test_plot__an_invalid_path_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot be written \(No such file or directory\)"):
        plot({}, title="", out=tmp_path / "gone" / "a.png")
