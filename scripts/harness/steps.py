"""What a case says about how far its round is: scripts/bench shows it with the time left. Elsewhere nobody listens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[str, float | None], None]
"""Takes what is being done, and how much of the round is done, or None."""
Teller = Callable[[str], object]
_heard: list[tuple[Listener, Teller]] = []


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def heard_by(listener: Listener, *, told: Teller = _print) -> Iterator[None]:
    """Give all steps of the block to a listener, and its lines to `told`."""
    _heard.append((listener, told))
    try:
        yield
    finally:
        _heard.pop()


def step(what: str, *, fraction: float | None = None) -> None:
    """Say what is being done; `fraction` of the round that is done, where it says how long the rest takes."""
    for listener, _ in _heard:
        listener(what, None if fraction is None else min(fraction, 1.0))


def say(line: str) -> None:
    """Print a line for who runs the case, above what is shown of its steps."""
    _, told = _heard[-1] if _heard else (None, _print)
    told(line)
