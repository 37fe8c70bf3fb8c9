"""A received message: the memory where it landed, which the application has to return."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, overload

from devmem.tokens import Frag
from srd.errors import UsageError
from srd.proto import events
from srd.proto.events import MessageReceived
from srd.rx_queues import RxQueueTable

Release = Callable[[int, Sequence[events.Extent], int, int], None]
"""Releases, for a peer's number: extents, the credit of so many bytes, and the credit of so many messages."""


def warn_dropped(what: object) -> None:
    """Warn of a message, or a batch of them, that is garbage before it was released."""
    warnings.warn(f"{what!r} was dropped; release it, or take its data()", ResourceWarning, stacklevel=3)


@dataclass(frozen=True, slots=True)
class WriteNotification:
    """A write with immediate has landed in memory registered here; the applications agree on where it lands."""

    length: int
    immediate: int


class Message:
    """A message as fragments in the receive regions, in order.

    Take it as bytes (`data`), use it as a context manager, `release` it, or return its `frags` one by one: until then
    the memory is not reused, and the sender lacks the credit. A message that is dropped instead is released when it is
    garbage-collected, with a ResourceWarning.
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
        self.received = False
        """Whether the application has it: `Peer.recv` sets it."""
        self._frags: tuple[Frag, ...] | None = None
        self._out: dict[int, events.Extent] = {}  # that were not returned yet, by token

    @property
    def length(self) -> int:
        """Bytes of the whole message."""
        return self._event.length

    @property
    def immediate(self) -> int | None:
        """The sender's 32-bit immediate, or None."""
        return self._event.immediate

    @property
    def extents(self) -> tuple[events.Extent, ...]:
        """Where it lies. For the endpoint."""
        return self._event.extents

    def move(self, extents: tuple[events.Extent, ...]) -> None:
        """Note where it lies now; before the application has it. For the endpoint."""
        self._event = replace(self._event, extents=extents)

    def data(self) -> bytes:
        """Return the message as bytes, and release it: one copy, counted. Raises UsageError if it was released."""
        whole = self.gather()
        self.release()
        return whole

    def frags(self) -> tuple[Frag, ...]:
        """Return the fragments in order of their offset in the message, without a copy. Each has a token to return it.

        Raises UsageError for a message that was released.
        """
        if self._frags is None:
            self._check()
            self._frags = tuple(self._issue(extent) for extent in self._event.extents)
        return self._frags

    def _issue(self, extent: events.Extent) -> Frag:
        place = extent.region_offset
        frag = self._queues.tokens.issue(
            place >> events.REGION_SHIFT,
            offset=place & events.OFFSET_MASK,
            length=extent.length,
            give_back=self._returned,
        )
        self._out[frag.token] = extent
        return frag

    def _returned(self, frag: Frag) -> None:
        extent = self._out.pop(frag.token)
        self._release(self._event.peer, (extent,), extent.length, int(not self._out))

    def views(self) -> Iterator[memoryview]:
        """Yield views of the fragments in order, without a copy.

        Objects made from a view may outlive the message: its memory is reused when the last of them is deleted. Raises
        UsageError for a message that was released, PoolError for a fragment that was returned.
        """
        self._check()
        for extent in self._event.extents:
            yield self._queues.view(extent)

    @overload
    def gather(self) -> bytes: ...

    @overload
    def gather(self, into: Any) -> memoryview: ...

    def gather(self, into: Any = None) -> bytes | memoryview:
        """Return the message as bytes, or copy it to the beginning of `into`, a writable buffer: one copy, counted.

        With `into`, return the part of it that was filled; raises UsageError when it is too small or read-only.
        """
        if into is None:
            whole = self._whole()
            self._queues.count_copy(len(whole))
            return whole
        target = memoryview(into).cast("B")
        if target.readonly or target.nbytes < self.length:
            what = "is read-only" if target.readonly else f"has {target.nbytes} bytes"
            raise UsageError(f"into: {what}; the message of {self.length} bytes needs memory to be written to")
        at = 0
        for view in self.views():
            target[at : at + len(view)] = view
            at += len(view)
        self._queues.count_copy(at)
        return target[:at]

    def _whole(self) -> bytes:
        if self._released or self._frags is not None:  # some may have been returned, which `views` sees
            return b"".join(self.views())
        pieces = [self._queues.copy(extent.region_offset, length=extent.length) for extent in self._event.extents]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def release(self) -> None:
        """Release the memory and credit of all fragments not returned yet. Further calls have no effect."""
        if self._released:
            return
        self._released = True
        if not self._frags:
            self._release(self._event.peer, self._event.extents, self.length, 1)
        for token in list(self._out):  # unknown tokens, if the endpoint was closed meanwhile
            self._queues.tokens.dontneed([(token, 1)])

    def _check(self) -> None:
        if self._released:
            raise UsageError("the message was released: its memory may hold another by now")

    def __del__(self) -> None:
        if not self._released and self._frags is None:
            event = self._event
            self._queues.call_soon(partial(self._release, event.peer, event.extents, event.length, 1))
            if self.received:
                warn_dropped(self)

    def __repr__(self) -> str:
        with_immediate = "" if self.immediate is None else f", immediate {self.immediate:#x}"
        return f"<Message of {self.length} bytes{with_immediate}{', released' if self._released else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
