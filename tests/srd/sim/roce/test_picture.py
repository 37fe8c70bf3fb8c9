"""srd.sim.roce.picture: the same panels are the same picture; keys hide no data; panels are of scenarios."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import BboxBase

from srd.sim.roce.picture import PANELS, Panel, draw
from srd.sim.roce.play import CONTENDERS
from srd.sim.roce.suite import SCENARIOS

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def panel(y: float, *, own_key: bool = False) -> Panel:
    series = {name: [(1.0, y), (2.0, y + place)] for place, name in enumerate(CONTENDERS)}
    return Panel("title", "ms", "flows", series, log_x=True, steps=True, own_key=own_key)


def test_draw__repeats() -> None:
    first = draw([panel(1.0), panel(2.0)])
    assert first.startswith(SIGNATURE)
    assert draw([panel(1.0), panel(2.0)]) == first
    assert draw([panel(1.0), panel(3.0)]) != first


@pytest.mark.parametrize("own_key", [False, True])
def test_keys__stand_outside_of_the_axes(*, own_key: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[tuple[BboxBase, list[BboxBase]]] = []

    def looked_at(figure: Figure, *_: object, **__: object) -> None:
        figure.draw_without_rendering()
        keys = [*figure.legends, *(key for axes in figure.axes if (key := axes.get_legend()))]
        boxes.extend((key.get_window_extent(), [axes.bbox for axes in figure.axes]) for key in keys)

    monkeypatch.setattr(Figure, "savefig", looked_at)
    draw([panel(1.0, own_key=own_key), panel(2.0)])
    assert len(boxes) == 1 + own_key
    assert not [key for key, all_axes in boxes for axes in all_axes if key.overlaps(axes)]


def test_panels__are_of_scenarios() -> None:
    assert {*PANELS} <= {*SCENARIOS}
