"""netns.faults.runner: events at their times, and their undoing, in a lab as on the virtual fabric."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netns.backends.virtual.fabric import VirtualFabric
from netns.errors import BackendError
from netns.faults.faults import active, repair
from netns.faults.runner import ScheduleRunner
from netns.faults.schedule import ScheduledEvent, in_order, parse_events
from netns.lab.lab import Lab, edit_shapes
from netns.netem.changes import AnyShape, Change, with_change
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine

SHAPE = Shape(delay_us=100, rate_bps=10**9, limit_packets=50)
pytestmark = [pytest.mark.root, pytest.mark.lab(leaf_spine(spines=2, shape=SHAPE), backend="relay", scope="module")]


@pytest.fixture(autouse=True)
def as_built(lab: Lab) -> Iterator[None]:
    """Each test leaves the lab as it was built."""
    yield
    repair(lab, active(lab))
    for path in lab.directory.path.glob("shape.*"):
        path.unlink()
    for link in lab.topology.links:
        if link.shaped:
            lab.reshape(link.name, ab=link.shape_ab, ba=link.shape_ba)


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


SCHEDULES: dict[str, list[dict[str, Any]]] = {
    "the first is over first": [
        {"at": "1s", "set": "leaf1-spine1", "shape": {"delay": "20ms"}, "for": "4s"},
        {"at": "3s", "set": "leaf1-spine1", "shape": {"delay": "50ms"}, "for": "4s"},
    ],
    "one within the other": [
        {"at": "1s", "set": "leaf1-spine1", "shape": {"delay": "20ms", "limit": 5}, "for": "6s"},
        {"at": "3s", "set": "spine1-leaf1", "shape": {"delay": "50ms"}, "for": "2s", "direction": "ab"},
    ],
    "what has no end stays": [
        {"at": "1s", "set": "leaf1-spine1", "shape": {"delay": "20ms", "loss": "1%"}, "for": "4s"},
        {"at": "3s", "set": "leaf1-spine1", "shape": {"loss": "gemodel 1% 10%"}},
        {"at": "6s", "set": "leaf1-spine1", "shape": {"rate": "10mbit"}, "for": "1s"},
    ],
    "at the same time": [
        {"at": "1s", "set": "leaf1-spine1", "shape": {"delay": "20ms"}, "for": "2s"},
        {"at": "1s", "set": "leaf1-spine1", "shape": {"delay": "20ms"}, "for": "4s"},
        {"at": "3s", "set": "leaf1-spine1", "shape": {"delay": "30ms"}, "for": "2s"},
    ],
    "a repair ends what has an end": [
        {"at": "1s", "fail": "leaf1-spine1", "for": "6s"},
        {"at": "2s", "fail": "spine1", "for": "6s"},
        {"at": "3s", "repair": "spine1-leaf1"},
        {"at": "4s", "repair": "spine1"},
        {"at": "5s", "fail": "leaf1-spine1"},
    ],
    "what fails anew after a repair": [
        {"at": "1s", "fail": "leaf1-spine1", "for": "4s", "carrier": True},
        {"at": "2s", "repair": "leaf1-spine1"},
        {"at": "3s", "fail": "leaf1-spine1", "for": "4s"},
    ],
}


@pytest.mark.parametrize("events", SCHEDULES.values(), ids=SCHEDULES)
def test_step__a_lab_is_as_the_virtual_fabric(lab: Lab, events: list[dict[str, Any]]) -> None:
    """After each event, and at the end as in the beginning but for what has no end."""
    schedule = in_order(parse_events({"events": events}, base=Path()))
    runner, fabric = ScheduleRunner(lab), VirtualFabric(lab.topology)
    runner.begin(schedule, at=0.0)
    fabric.run_schedule(schedule)
    before = lab.shapes("leaf1-spine1")
    while (at_s := runner.next_at) is not None:
        while runner.next_at == at_s:
            runner.step()
        fabric.run(until_ns=round(at_s * 1e9))
        for link in lab.topology.links:
            here, there = fabric.links[link.a, link.b], fabric.links[link.b, link.a]
            assert (link.name in lab.dead_links()) == bool(here.failures) == bool(there.failures), at_s
            if link.shaped:
                assert here.netem is not None
                assert there.netem is not None
                assert lab.shapes(link.name) == {"ab": here.netem.shape, "ba": there.netem.shape}, at_s
    for_good = {key: value for event in events if "for" not in event for key, value in event.get("shape", {}).items()}
    wanted = {way: shape and shape.changed(for_good) for way, shape in before.items()}
    assert lab.shapes("leaf1-spine1") == wanted


def test_undo__goes_on_after_an_error_and_reports_all(lab: Lab) -> None:
    names = ("leaf1-spine1", "leaf1-spine2", "leaf2-spine1", "leaf2-spine2")
    runner = ScheduleRunner(lab)
    runner.begin([change_of(name, for_us=10**9) for name in names], at=0.0)
    for _ in names:
        runner.step()
    files = [lab.directory.path / f"shape.{name}.ab.json" for name in (names[0], names[2])]
    for file in files:
        file.write_text("{")
    with pytest.raises(BackendError) as caught:
        runner.undo()
    assert all(file.name in str(caught.value) for file in files)
    assert [lab.shapes(name)["ab"] for name in (names[1], names[3])] == [SHAPE, SHAPE]


def test_run__an_event_that_fails_and_an_undoing_that_fails_are_both_reported(lab: Lab) -> None:
    def on_event(_at_s: float, _text: str) -> None:
        (lab.directory.path / "shape.leaf1-spine1.ab.json").write_text("{")

    fails = ScheduledEvent(at_us=1, action="set", name="h1-leaf1", shape={"delay": "1ms"})
    with pytest.raises(BackendError, match=r"link h1-leaf1: it is not shaped, .*; .*leaf1-spine1.ab.json: not a shape"):
        ScheduleRunner(lab, on_event=on_event).run([change_of("leaf1-spine1", for_us=10**9), fails])


def change_of(name: str, *, for_us: float) -> ScheduledEvent:
    return ScheduledEvent(at_us=0, action="set", name=name, shape={"delay": "20ms"}, for_us=for_us)


def test_run__of_another_process_is_left_alone(lab: Lab) -> None:
    """It is another one for whom the lab is found by its name, as by `srd-lab set` and `srd-lab run-schedule`."""
    ours, theirs = ScheduleRunner(lab), ScheduleRunner(Lab.find(lab.name))
    for runner, delay in ((ours, "20ms"), (theirs, "50ms")):
        shape = {"delay": delay}
        runner.begin([ScheduledEvent(at_us=0, action="set", name="leaf1-spine1", shape=shape, for_us=10**9)], at=0.0)
        runner.step()
    Lab.find(lab.name).change("leaf1-spine1", {"loss": "5%"})
    ours.undo()
    assert lab.shapes("leaf1-spine1")["ab"] == SHAPE.changed({"delay": "50ms", "loss": "5%"})
    theirs.undo()
    assert lab.shapes("leaf1-spine1")["ab"] == SHAPE.changed({"loss": "5%"})


def test_edit_shapes__sees_what_another_changes_meanwhile(lab: Lab) -> None:
    edits = 0

    def edit(shape: AnyShape) -> AnyShape:
        nonlocal edits
        edits += 1
        if edits == 1:
            Lab.find(lab.name).change("leaf1-spine1", {"loss": "5%"})
        return with_change(shape, Change.parse({"delay": "2ms"}))

    edit_shapes(lab, "leaf1-spine1", edit)
    assert set(lab.shapes("leaf1-spine1").values()) == {SHAPE.changed({"loss": "5%", "delay": "2ms"})}
