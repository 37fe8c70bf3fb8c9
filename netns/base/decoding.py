"""Dataclasses from the JSON that another process sent, which may be anything: by the types of their fields."""

from __future__ import annotations

from dataclasses import is_dataclass
from enum import Enum
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_type_hints

MAX_INTEGER: Final = (1 << 64) - 1
MAX_TEXT: Final = 1000
"""Characters."""
_LIMITS: Final[dict[type, float]] = {int: MAX_INTEGER, float: 1e12}
T = TypeVar("T")


def decoded_untrusted(kind: type[T], value: object) -> T:
    """Return an object of JSON as a dataclass. Raises ValueError, and nothing else.

    Its fields are texts, numbers that are not negative, booleans, enums by their values, sequences of these, and other
    dataclasses; each may be `| None`. `Any` is not checked. All are required; what is no field is ignored.
    """
    found, values = value if isinstance(value, dict) else {}, dict[str, Any]()
    for name, hint in get_type_hints(kind).items():
        try:
            values[name] = _value_untrusted(found[name], hint)
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"an invalid {name}") from None
    return kind(**values)


def _value_untrusted(value: Any, hint: Any) -> Any:
    """Return what a field of this type may have. Raises TypeError and ValueError."""
    inner = get_args(hint)
    if hint is Any:
        return value
    if NoneType in inner:
        return None if value is None else _value_untrusted(value, inner[0])
    if inner and isinstance(value, list):
        return tuple(_value_untrusted(each, inner[0]) for each in value)
    if not isinstance(hint, type):
        raise TypeError("no list")
    if issubclass(hint, Enum):
        return hint(value)
    if is_dataclass(hint):
        return decoded_untrusted(hint, value)
    limit = _LIMITS.get(hint)
    if hint is float and type(value) is int and value in range(MAX_INTEGER):
        value = float(value)
    if type(value) is not hint or (limit is not None and not 0 <= value <= limit):  # NaN neither
        raise TypeError(f"no {hint.__name__}")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise ValueError("too long")
    return value
