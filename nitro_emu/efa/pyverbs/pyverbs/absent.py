"""Stand-ins for what an EFA device does not have, so that programs that name it can be imported.

Any public name exists in such a module. Creating an object of it raises PyverbsRDMAError with EOPNOTSUPP, as libibverbs
does on such a device; as a constant it is 0.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import new_class
from typing import cast

from pyverbs.pyverbs_error import PyverbsRDMAError


class _AbsentType(type):
    """The type of the stand-ins: constants of an absent enumeration are 0."""

    def __getattr__(cls, name: str) -> int:
        """Return 0 for a constant."""
        if name.startswith("__"):
            raise AttributeError(name)
        return 0


class Absent(metaclass=_AbsentType):
    """An object that this device cannot have."""

    def __init__(self, *_: object, **__: object) -> None:
        raise PyverbsRDMAError(f"{type(self).__name__} is not supported by this device", errno.EOPNOTSUPP)


def stand_ins(module: str) -> Callable[[str], type[Absent]]:
    """Return a `__getattr__` for a module in which any public name is a stand-in (PEP 562)."""
    made: dict[str, type[Absent]] = {}

    def get(name: str) -> type[Absent]:
        if name.startswith("_") and not name.startswith("_MLX5"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if name not in made:
            made[name] = cast("type[Absent]", new_class(name, (Absent,)))
            made[name].__module__ = module
        return made[name]

    return get
