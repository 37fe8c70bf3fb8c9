"""What an error is about, said before its message as it passes: a file, a key in it, a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def named(prefix: str, *kinds: type[Exception], error: Callable[[str], Exception] | None = None) -> Iterator[None]:
    """Raise errors of these kinds again with `prefix` before their message, as what they are or as `error`."""
    try:
        yield
    except kinds as failure:
        raise (error or type(failure))(f"{prefix}{failure}") from failure
