"""Defects that were found once, to be put back: what does not find them again is no test (tests only)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SABOTAGES: Final[dict[str, Callable[[], None]]] = {}
