"""A received message, short or long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Self

from srd.errors import UsageError


class ReceivedMessage:
    """A `srd.file_transfer.transport.Message`."""

    __slots__ = ("_release", "_view", "immediate", "length")

    def __init__(self, view: memoryview, *, immediate: int | None, release: Callable[[], None]) -> None:
        """`view`: where it lies; it is reused after `release` was called."""
        self.length = len(view)
        self.immediate = immediate
        self._view: memoryview | None = view
        self._release = release

    def views(self) -> Iterator[memoryview]:
        """Yield its only piece, without a copy. Raises UsageError for a message that was released."""
        if self._view is None:
            raise UsageError("the message was released: its memory may hold another by now")
        yield self._view

    def gather(self) -> bytes:
        """Return it as bytes. Raises UsageError for a message that was released."""
        return b"".join(self.views())

    def release(self) -> None:
        """Release its memory. Further calls have no effect."""
        if self._view is not None:
            self._view = None
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
