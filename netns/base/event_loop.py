"""The event loop of commands: uvloop's, or asyncio's own where that is not installed, which takes more time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
_Factory = Callable[[], asyncio.AbstractEventLoop]


def _factory() -> _Factory | None:
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - optional
    except ModuleNotFoundError:
        return None
    return new_event_loop


FACTORY: Final = _factory()
"""Makes a loop; None: asyncio does."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    with asyncio.Runner(loop_factory=FACTORY) as runner:
        return runner.run(main)
