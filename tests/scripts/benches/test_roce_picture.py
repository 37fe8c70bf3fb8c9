"""scripts.benches.roce_picture: the same panels are the same picture; labels are those of the contenders."""

from __future__ import annotations

from scripts.benches.roce_picture import HEADERS, Panel, draw
from srd.sim.roce.play import CONTENDERS

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def panel(y: float) -> Panel:
    series = {name: [(1.0, y), (2.0, y + place)] for place, name in enumerate(CONTENDERS)}
    return Panel("title", "ms", "flows", series, log_x=True, steps=True)


def test_draw__repeats() -> None:
    first = draw([panel(1.0), panel(2.0)])
    assert first.startswith(SIGNATURE)
    assert draw([panel(1.0), panel(2.0)]) == first
    assert draw([panel(1.0), panel(3.0)]) != first


def test_headers__are_unique() -> None:
    assert len(set(HEADERS)) == len(HEADERS)
