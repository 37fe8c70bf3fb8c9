"""What arrives at a queue pair."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

from nitro_emu.errors import VerbsError


@dataclass(frozen=True, slots=True)
class Source:
    """The queue pair that a message came from. To answer it one needs its queue key, which messages do not carry."""

    gid: bytes
    qpn: int


@dataclass(frozen=True, slots=True)
class WriteNotification:
    """A write with immediate has landed in memory registered here; the applications agree on where it lands."""

    source: Source
    length: int
    immediate: int


class Message:
    """A message in a buffer of the queue pair. A context manager; `release` posts the buffer again."""

    __slots__ = ("_counted", "_release", "_view", "immediate", "length", "source")

    def __init__(
        self,
        source: Source,
        view: memoryview,
        *,
        immediate: int | None,
        release: Callable[[], None],
        counted: Callable[[int], None],
    ) -> None:
        """`counted` is called with the bytes that were copied."""
        self.source = source
        self.length = len(view)
        self.immediate = immediate
        """The sender's 32-bit immediate, or None."""
        self._view: memoryview | None = view
        self._release = release
        self._counted = counted

    @property
    def view(self) -> memoryview:
        """The message, without a copy. It must not be used after the release. Raises VerbsError then."""
        if self._view is None:
            raise VerbsError(errno.EINVAL, "the message was released: its buffer may hold another by now")
        return self._view

    def views(self) -> Iterator[memoryview]:
        """Yield the message's only piece, as `srd.message.Message.views` yields all."""
        yield self.view

    def gather(self) -> bytes:
        """Return the message as bytes: one copy, counted."""
        self._counted(self.length)
        return bytes(self.view)

    def release(self) -> None:
        """Post the buffer again. Further calls have no effect."""
        if self._view is not None:
            self._view = None
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
