"""How long a test waits for what must come, and how it waits for what nothing reports.

What has an event is waited for by that event. `until` and `wait_until` are for the rest: counters, the kernel's tables,
another process's state.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from typing import Final

PATIENCE_S: Final = 60
"""Enough on a machine ten times slower than usual, with coverage. A passing test does not wait this long."""
PAUSE_S: Final = 0.005
"""Between two looks, after the first ones: a look at another process or the kernel costs a tenth of it."""
QUICK_LOOKS: Final = 50
"""Looks without a pause: most conditions hold within a millisecond."""


async def until(condition: Callable[[], object], *, pause_s: float = PAUSE_S) -> None:
    """Return once the condition holds; `pause_s` 0 looks in each turn of the loop, for what may not last.

    AssertionError with the condition's source after PATIENCE_S.
    """
    for look_pause_s in _pauses(condition, pause_s=pause_s):
        await asyncio.sleep(look_pause_s)


def wait_until(condition: Callable[[], object]) -> None:
    """Return once the condition holds, in a test without an event loop. Raises as `until` does."""
    for pause_s in _pauses(condition, pause_s=PAUSE_S):
        time.sleep(pause_s)


def _pauses(condition: Callable[[], object], *, pause_s: float) -> Iterator[float]:
    """Give the pause after each look that does not find the condition fulfilled."""
    give_up_at = time.monotonic() + PATIENCE_S
    looks = 0
    while not condition():
        assert time.monotonic() < give_up_at, f"not within {PATIENCE_S} s: {_source(condition)}"
        looks += 1
        yield 0 if looks < QUICK_LOOKS else pause_s


def _source(condition: Callable[[], object]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except TypeError:  # a partial function, whose repr has its arguments
        return repr(condition)
