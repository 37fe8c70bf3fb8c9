"""Waiting for what no event tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from scripts.harness.errors import BenchError

_LOOK_S: Final = 0.02


def wait_until(is_so: Callable[[], object], *, within_s: float, missing: str) -> None:
    """Look again and again until something is so. Raises BenchError that names what is missing."""
    give_up_at = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() >= give_up_at:
            raise BenchError(f"{missing} within {within_s:g} s")
        time.sleep(_LOOK_S)
