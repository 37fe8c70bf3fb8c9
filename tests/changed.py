"""A copy of an object with other values."""

from __future__ import annotations

import inspect
from typing import TypeVar

T = TypeVar("T")


def changed(thing: T, **fields: object) -> T:
    """Return one as `thing`, but with these attributes; a compiled class has to be made by its arguments."""
    kind = type(thing)
    return kind(**{name: getattr(thing, name) for name in inspect.signature(kind).parameters} | fields)
