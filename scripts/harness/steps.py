"""What a case says about how far its round is: scripts/bench shows it with the time left. Elsewhere nobody listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, float | None], None]
"""Takes what is being done, and how much of the round is done, or None."""
_listeners: list[Listener] = []


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Give all steps of the block to a listener."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def step(what: str, *, fraction: float | None = None) -> None:
    """Say what is being done; `fraction` of the round that is done, where it says how long the rest takes."""
    for listener in _listeners:
        listener(what, None if fraction is None else min(fraction, 1.0))
