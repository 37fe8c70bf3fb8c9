"""netns.faults.runner: events at their times, and their undoing."""

from __future__ import annotations

import pytest

from netns.faults.faults import active, repair
from netns.faults.runner import ScheduleRunner
from netns.faults.schedule import ScheduledEvent
from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine

SHAPE = Shape(delay_us=100, rate_bps=10**9, limit_packets=50)
pytestmark = [pytest.mark.root, pytest.mark.lab(leaf_spine(spines=2, shape=SHAPE), backend="relay", scope="module")]


def test_run__events_and_their_undoing_in_order(lab: Lab) -> None:
    reported: list[tuple[float, str, set[str], float]] = []

    def on_event(at_s: float, text: str) -> None:
        shape = lab.shapes("leaf1-spine2")["ab"]
        assert shape is not None
        reported.append((at_s, text, {failure.name for failure in active(lab)}, shape.delay_us))

    ScheduleRunner(lab, on_event=on_event).run(
        [
            ScheduledEvent(at_us=0, action="fail", name="spine1", for_us=100_000),
            ScheduledEvent(at_us=50_000, action="set", name="leaf1-spine2", shape={"delay": "2ms"}, for_us=100_000),
        ]
    )
    assert [(text, dead, delay) for _, text, dead, delay in reported] == [
        ("fail spine1 for 0.1 s", {"spine1"}, 100),
        ("set leaf1-spine2 delay=2ms for 0.1 s", {"spine1"}, 2000),
        ("over: fail spine1 for 0.1 s", set(), 2000),
        ("over: set leaf1-spine2 delay=2ms for 0.1 s", set(), 100),
    ]
    for (at_s, *_), wanted_s in zip(reported, (0, 0.05, 0.1, 0.15), strict=True):
        assert at_s >= wanted_s


def test_run__repairs_failures_without_an_end(lab: Lab) -> None:
    ScheduleRunner(lab).run([ScheduledEvent(at_us=0, action="fail", name="leaf1-spine1")])
    assert [failure.name for failure in active(lab)] == ["leaf1-spine1"]
    ScheduleRunner(lab).run([ScheduledEvent(at_us=0, action="repair", name="leaf1-spine1")])
    assert not active(lab)


def test_run__interrupted_undoes_events_with_an_end(lab: Lab) -> None:
    def on_event(_at_s: float, text: str) -> None:
        if text.startswith("set"):
            raise KeyboardInterrupt

    events = [
        ScheduledEvent(at_us=0, action="fail", name="spine1", for_us=10**9),
        ScheduledEvent(at_us=0, action="fail", name="leaf1-spine2"),
        ScheduledEvent(at_us=1000, action="set", name="leaf1-spine1", shape={"loss": "5%"}, direction="ab"),
    ]
    with pytest.raises(KeyboardInterrupt):
        ScheduleRunner(lab, on_event=on_event).run(events)
    assert [failure.name for failure in active(lab)] == ["leaf1-spine2"], "it has no end"
    assert lab.shapes("leaf1-spine1")["ab"] == SHAPE.changed({"loss": "5%"})
    assert lab.shapes("leaf1-spine1")["ba"] == SHAPE
    repair(lab, active(lab))
