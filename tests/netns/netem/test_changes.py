"""netns.netem.changes: each change is taken back alone, whatever others set meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.errors import ShapeError
from netns.netem.changes import AnyShape, Change, ChangedShape, effective, shape_from_dict, with_change, without_change
from netns.netem.shape import Shape
from netns.topology.model import with_buffer

BASE = with_buffer(Shape(delay_us=1000, rate_bps=100_000_000), mtu=1500)
MAPPINGS: list[dict[str, Any]] = [
    {"delay": "20ms"},
    {"delay": "50ms", "loss": "5%"},
    {"loss": "gemodel 1% 10%"},
    {"rate": "10mbit"},
    {"limit": 7},
    {"limit": 9, "rate": "1gbit"},
    {"slot": "1ms 2ms"},
]


@given(
    st.lists(
        st.tuples(st.sampled_from(MAPPINGS), st.integers(0, 20), st.none() | st.integers(1, 20)), min_size=1, max_size=8
    )
)
def test_effective__is_the_newest_of_what_is_not_over(changes: list[tuple[dict[str, Any], int, int | None]]) -> None:
    """As if the link was made anew whenever something begins or ends, from what is in force then."""
    begins = sorted((begin, number) for number, (_, begin, _) in enumerate(changes))
    ends = sorted((begin + lasts, number) for number, (_, begin, lasts) in enumerate(changes) if lasts is not None)
    shape: AnyShape = BASE
    in_force: list[int] = []
    for _, kind, number in sorted([*((at, 1, n) for at, n in begins), *((at, 0, n) for at, n in ends)]):
        mapping, _, lasts = changes[number]
        key = None if lasts is None else str(number)
        if kind:
            in_force.append(number)
            shape = with_change(shape, Change.parse(mapping, key=key))
        else:
            in_force.remove(number)
            shape = without_change(shape, str(number))
        shape = shape_from_dict(json.loads(json.dumps(shape.to_dict())))
        wanted = BASE
        for each in in_force:
            wanted = wanted.changed(changes[each][0])
        assert effective(shape) == wanted
    if all(lasts is not None for _, _, lasts in changes):
        assert shape == BASE
    assert isinstance(shape, Shape), "nothing is left that has an end"


def test_simplified__is_bounded_by_the_changes_with_an_end() -> None:
    shape = with_change(BASE, Change.parse({"delay": "9ms"}, key="long"))
    for number in range(1, 50):
        shape = with_change(shape, Change.parse({"limit": number}))
        shape = with_change(shape, Change.parse({"loss": "1%"}, key="short"))
        shape = without_change(shape, "short")
    assert isinstance(shape, ChangedShape)
    assert len(shape.changes) == 2
    assert without_change(shape, "long") == BASE.changed({"limit": 49})


def test_without_change__of_an_unknown_key_changes_nothing() -> None:
    assert without_change(BASE, "x") == BASE


def test_with_change__bad_flow() -> None:
    with pytest.raises(ShapeError, match="loss: 120 % is not between"):
        with_change(BASE, Change.parse({"loss": "120%"}))


def test_without_change__what_another_needs_bad_flow() -> None:
    shape = with_change(Shape(), Change.parse({"delay": "1ms"}, key="a"))
    shape = with_change(shape, Change.parse({"reorder": "25%"}))
    with pytest.raises(ShapeError, match="reorder: needs a delay"):
        without_change(shape, "a")
