"""What a case says about how far its round is: scripts/bench shows it with the time left. Elsewhere nobody listens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, float | None], None]
"""Takes what is being done, and how much of the round is done, or None."""
_listeners: list[Listener] = []
_tellers: list[Callable[[str], object]] = []


@contextmanager
def heard_by(listener: Listener, *, told: Callable[[str], object] | None = None) -> Iterator[None]:
    """Give all steps of the block to a listener, and its lines to `told`; without it they go to stderr."""
    tellers = [] if told is None else [told]
    _listeners.append(listener)
    _tellers.extend(tellers)
    try:
        yield
    finally:
        _listeners.remove(listener)
        del _tellers[len(_tellers) - len(tellers) :]


def step(what: str, *, fraction: float | None = None) -> None:
    """Say what is being done; `fraction` of the round that is done, where it says how long the rest takes."""
    for listener in _listeners:
        listener(what, None if fraction is None else min(fraction, 1.0))


def say(line: str) -> None:
    """Print a line for who runs the case, above what is shown of its steps."""
    if _tellers:
        _tellers[-1](line)
    else:
        print(line, file=sys.stderr, flush=True)
