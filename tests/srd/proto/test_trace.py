"""srd.proto.trace: the events are values of plain fields."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import get_args, get_type_hints

import pytest

from srd.proto import trace

SAMPLES: dict[object, object] = {int: 7, float: 1.5, str: "x", bool: True}


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
