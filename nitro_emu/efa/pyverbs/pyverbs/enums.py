"""All enumerations and their members, flat: the module that pyverbs had before release 46."""

from __future__ import annotations

from enum import Enum
from typing import Any

from pyverbs import libibverbs_enums


def __getattr__(name: str) -> Enum | Any:
    """Return what `pyverbs.libibverbs_enums` has under this name (PEP 562)."""
    return getattr(libibverbs_enums, name)


def __dir__() -> list[str]:
    """Return the names of `pyverbs.libibverbs_enums`."""
    return dir(libibverbs_enums)
