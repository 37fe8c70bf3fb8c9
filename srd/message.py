"""A received message: where it lies, and the duty to give the memory back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, overload

from devmem.tokens import Frag
from devmem.uapi import AREA_SHIFT
from srd.errors import UsageError
from srd.proto import events
from srd.proto.events import MessageReceived

if TYPE_CHECKING:
    from srd.rx_queues import RxQueueTable

Release = Callable[[int, Sequence[events.Frag], int, int], None]
"""Takes back, of a peer's number: memory, the credit of so many bytes, and of so many messages."""

_OFFSET = (1 << AREA_SHIFT) - 1


@dataclass(frozen=True, slots=True)
class WriteNotification:
    """A write with immediate of the peer's has landed in memory registered here; where, is between the two of you."""

    length: int
    immediate: int


class Message:
    """Pieces in the receive regions, in order.

    Use it as a context manager, or `release` it, or return its `frags` one by one: until then its memory is yours, and
    the sender is short of credit.
    """

    def __init__(
        self,
        event: MessageReceived,
        *,
        queues: RxQueueTable,
        release: Release,
    ) -> None:
        self._event = event
        self._queues = queues
        self._release: Release = release
        self._released = False
        self._frags: tuple[Frag, ...] | None = None
        self._out: dict[int, events.Frag] = {}  # by token: pieces that were not returned yet

    @property
    def length(self) -> int:
        """Bytes of the whole message."""
        return self._event.length

    @property
    def immediate(self) -> int | None:
        """The sender's 32-bit immediate; None: it gave none."""
        return self._event.immediate

    def frags(self) -> tuple[Frag, ...]:
        """Return the pieces, in order of their offset in the message: no copy. Each has a token to return it by.

        Raises UsageError for a message that was released.
        """
        if self._frags is None:
            self._check()
            self._frags = tuple(self._issue(piece) for piece in self._event.frags)
        return self._frags

    def _issue(self, piece: events.Frag) -> Frag:
        place = piece.region_offset
        frag = self._queues.tokens.issue(
            place >> AREA_SHIFT, offset=place & _OFFSET, length=piece.length, give_back=self._returned
        )
        self._out[frag.token] = piece
        return frag

    def _returned(self, frag: Frag) -> None:
        piece = self._out.pop(frag.token)
        self._release(self._event.peer, (piece,), piece.length, int(not self._out))

    def views(self) -> Iterator[memoryview]:
        """Yield the pieces' memory in order, without a copy.

        What is made from a view may outlive the message: its memory is used again when the last of it is gone. Raises
        UsageError for a message that was released, PoolError for a piece that was returned.
        """
        self._check()
        for piece in self._event.frags:
            yield self._queues.view(piece)

    @overload
    def gather(self) -> bytes: ...

    @overload
    def gather(self, into: Any) -> memoryview: ...

    def gather(self, into: Any = None) -> bytes | memoryview:
        """Return the message as bytes, or copied to the beginning of `into`, a writable buffer: one copy, counted.

        Returns the part of `into` that was filled. Raises UsageError when it is too small or read-only.
        """
        if into is None:
            whole = b"".join(self.views())
            self._queues.gathered(len(whole))
            return whole
        target = memoryview(into).cast("B")
        if target.readonly or target.nbytes < self.length:
            what = "is read-only" if target.readonly else f"has {target.nbytes} bytes"
            raise UsageError(f"into: {what}; the message of {self.length} bytes needs memory to be written to")
        at = 0
        for view in self.views():
            target[at : at + len(view)] = view
            at += len(view)
        self._queues.gathered(at)
        return target[:at]

    def release(self) -> None:
        """Give back the memory and the credit of all that was not returned yet. Once is enough; more does nothing."""
        if self._released:
            return
        self._released = True
        if not self._frags:
            self._release(self._event.peer, self._event.frags, self.length, 1)
        for token in list(self._out):  # unknown ones, if the endpoint was closed meanwhile
            self._queues.tokens.dontneed([(token, 1)])

    def _check(self) -> None:
        if self._released:
            raise UsageError("the message was released: its memory may hold another by now")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
