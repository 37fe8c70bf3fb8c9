"""srd.proto.trace: the events are values of plain fields."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto import trace
from srd.proto.config import MAX_PATH_NUMBERS

SAMPLES: dict[object, object] = {int: 7, float: 1.5, str: "x", bool: True, tuple[int, ...]: (3, 5)}


@pytest.mark.parametrize("kind", get_args(trace.TraceEvent), ids=lambda kind: kind.__name__)
def test_events__are_values(kind: type) -> None:
    """They go from the core to a sink, which must not be able to change the core by them."""
    hints = get_type_hints(kind)
    values = {field.name: SAMPLES[hints[field.name]] for field in fields(kind)}
    event = kind(**values)
    assert event == kind(**values)
    assert hash(event) == hash(kind(**values))
    assert not hasattr(event, "__dict__")
    for name in values:
        with pytest.raises(FrozenInstanceError):
            setattr(event, name, 99)
    assert kind.__doc__


def test_trace_event__has_every_event_of_the_module() -> None:
    classes = {
        thing for thing in vars(trace).values() if isinstance(thing, type) and hasattr(thing, "__dataclass_fields__")
    }
    assert classes == set(get_args(trace.TraceEvent))


@given(path=st.integers(0, MAX_PATH_NUMBERS - 1), sequence=st.integers(0, 1 << 40))
def test_packet_number__is_of_one_packet(path: int, sequence: int) -> None:
    number = trace.packet_number(path, sequence)
    assert (number % MAX_PATH_NUMBERS, number // MAX_PATH_NUMBERS) == (path, sequence % (1 << 32))
