"""srd.proto.trace: the events are values of plain fields."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from srd.proto import trace
from srd.proto.config import MAX_PATH_NUMBERS


def test_trace_event__has_every_event_of_the_module() -> None:
    classes = {
        thing for thing in vars(trace).values() if isinstance(thing, type) and hasattr(thing, "__dataclass_fields__")
    }
    assert classes == set(get_args(trace.TraceEvent))


@given(path=st.integers(0, MAX_PATH_NUMBERS - 1), sequence=st.integers(0, 1 << 40))
def test_packet_number__is_of_one_packet(path: int, sequence: int) -> None:
    number = trace.packet_number(path, sequence)
    assert (number % MAX_PATH_NUMBERS, number // MAX_PATH_NUMBERS) == (path, sequence % (1 << 32))
