"""netns.base.decoding: JSON is a dataclass, or it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.base.decoding import MAX_INTEGER, MAX_TEXT, decoded_untrusted


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    number: int


@dataclass(frozen=True)
class Outer:
    name: str
    seconds: float
    colour: Colour
    inner: Inner | None
    numbers: Sequence[int]
    inners: tuple[Inner, ...]
    free: Any
    is_on: bool


OUTER = Outer("a", 1.5, Colour.RED, Inner(1), (MAX_INTEGER, 0), (Inner(2),), {"any": "thing"}, is_on=True)
AS_JSON = {**asdict(OUTER), "numbers": [MAX_INTEGER, 0], "inners": [{"number": 2}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
)


def test_decoded__by_the_types_of_the_fields() -> None:
    assert decoded_untrusted(Outer, {**AS_JSON, "of another version": 1}) == OUTER
    assert decoded_untrusted(Outer, {**AS_JSON, "inner": None, "seconds": 2}).seconds == 2.0


@pytest.mark.parametrize(
    "changed",
    [
        {"name": 1}, {"name": "a" * (MAX_TEXT + 1)}, {"seconds": -1.0}, {"seconds": float("nan")},
        {"seconds": float("inf")}, {"seconds": 10**400}, {"seconds": -(10**400)}, {"is_on": 1}, {"colour": "blue"},
        {"colour": []}, {"inner": {}}, {"inner": {"number": True}}, {"inner": {"number": -1}}, {"numbers": None},
        {"numbers": [MAX_INTEGER + 1]}, {"numbers": ["1"]}, {"inners": {"number": 1}},
    ],
)  # fmt: skip
def test_decoded__bad_flow(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"invalid {next(iter(changed))}"):
        decoded_untrusted(Outer, {**AS_JSON, **changed})


@given(JSON | st.dictionaries(st.sampled_from(list(AS_JSON)), JSON).map(lambda changed: {**AS_JSON, **changed}))
def test_decoded__any_json_is_decoded_or_refused(value: Any) -> None:
    with suppress(ValueError):
        assert isinstance(decoded_untrusted(Outer, value), Outer)
