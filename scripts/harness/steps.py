"""What a case says about how far its round is: scripts/bench shows it with the time left. Elsewhere nobody listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Listener = Callable[[str, float | None], None]
"""Takes what is being done, and how much of the round is done, or None."""
_T = TypeVar("_T")
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


def steps(things: Sequence[_T], what: str) -> Iterator[_T]:
    """Yield all things of a round, each of which takes about as long."""
    for number, thing in enumerate(things):
        step(f"{what} {number + 1} of {len(things)}", fraction=number / len(things))
        yield thing
