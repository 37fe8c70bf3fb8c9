"""netns.faults.schedule: schedules from YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from netns.errors import LabError
from netns.faults.schedule import ScheduledEvent, read_schedule
from netns.topology.model import reference


def plan(tmp_path: Path, text: str) -> tuple[ScheduledEvent, ...]:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return read_schedule(path, reference())


def test_read_plan__in_order_of_time(tmp_path: Path) -> None:
    events = plan(
        tmp_path,
        """
        events:
          - {at: 8s, set: leaf1-spine2, shape: {delay: 20ms}, direction: ab}
          - {at: 5s, fail: spine1, for: 2s}
          - {at: 12s, repair: spine1}
          - {at: 13s, fail: leaf1-spine2, carrier: true}
        """,
    )
    assert [(event.at_us, event.action, event.name, event.for_us) for event in events] == [
        (5e6, "fail", "spine1", 2e6),
        (8e6, "set", "leaf1-spine2", None),
        (12e6, "repair", "spine1", None),
        (13e6, "fail", "leaf1-spine2", None),
    ]
    assert [str(event) for event in events] == [
        "fail spine1 for 2 s",
        "set leaf1-spine2 delay=20ms",
        "repair spine1",
        "fail leaf1-spine2 with its carrier",
    ]
    assert events[1].direction == "ab"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "contains no schedule; give events"),
        ("events: [{at: 5s}]", "events[0]: has none of fail, set, repair; give one"),
        ("events: [{fail: spine1, repair: spine1}]", "events[0]: has 2 of fail, set, repair; give one"),
        (
            "events: [{at: 5, fail: spine1}]",
            "events[0].at: 5 is not a time: give a unit, one of d, h, min, s, ms, us, ns (for example 0.5ms)",
        ),
        (
            "events: [{at: 1e99s, fail: spine1}]",
            "events[0].at: 1e99s is too long; at most 2592000 s",
        ),
        ("events: [{at: -5s, fail: spine1}]", "events[0].at: -5s is before the start of the schedule"),
        (
            "events: [{fail: spine9}]",
            "events[0].fail: spine9: neither a link nor a node of reference; name one, as in leaf1-spine2",
        ),
        ("events: [{set: leaf1-spine1}]", "events[0].shape: belongs to set, and set needs one"),
        ("events: [{fail: spine1, shape: {}}]", "events[0].shape: belongs to set, and set needs one"),
        ("events: [{repair: spine1, for: 1s}]", "events[0].for: a repair is for good; leave it out"),
        ("events: [{repair: spine1, carrier: true}]", "events[0].carrier: belongs to fail; leave it out"),
        (
            "events: [{set: leaf1-spine1, shape: {loss: 120%}}]",
            "events[0].shape: loss: 120 % is not between 0 % and 100 %",
        ),
        (
            "events: [{fial: spine1}]",
            (
                "events[0].fial: no such key; "
                "the known ones here are at, fail, set, repair, for, shape, direction, carrier"
            ),
        ),
        ("event: []", "events: missing"),
    ],
)
def test_read_plan__bad_flow(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LabError) as caught:
        plan(tmp_path, text)
    assert str(caught.value) == f"{tmp_path}/plan.yaml: {message}"


def test_read_plan__unknown_link_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"events\[0\].set: link a-b: no such link in reference; the shaped ones are: "):
        plan(tmp_path, "events: [{set: a-b, shape: {delay: 1ms}}]")
