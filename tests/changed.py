"""A copy of an object with other values."""

from __future__ import annotations

from copy import copy
from typing import TypeVar

T = TypeVar("T")


def changed(thing: T, **fields: object) -> T:
    """Return a copy of `thing` that has these attributes."""
    other = copy(thing)
    for name, value in fields.items():
        setattr(other, name, value)
    return other
