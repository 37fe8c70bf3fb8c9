"""Batches of small messages: the arguments of `Peer.post_sends`, and messages that arrived together."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from srd.errors import UsageError
from srd.message import Message, Release, warn_dropped
from srd.proto.events import Extent, MessageReceived, MessagesReceived
from srd.rx_queues import RxQueueTable

Integers = Sequence[int] | npt.NDArray[np.integer]


def integer(name: str, value: Any) -> int:
    """Return an argument as an integer. Raises UsageError for anything else, including a bool."""
    if type(value) is int:  # the common case
        return value
    if not isinstance(value, bool):
        with suppress(TypeError):
            return operator.index(value)
    raise UsageError(f"{name}: {value!r} is no integer; give one")


def _integers(name: str, values: int | Integers) -> npt.NDArray[np.int64]:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        for value in np.ravel(np.asarray(values, dtype=object)):
            integer(name, value)
        raise UsageError(f"{name}: {array.flat[0]!r} is no integer that fits into 64 bits; give such")
    return array.astype(np.int64, copy=False)


def equal_parts(
    region: Region, offsets: Integers, lengths: int | Integers, *, most_bytes: int
) -> Iterator[tuple[npt.NDArray[np.uint64], int]]:
    """Yield (addresses, length) for each run of consecutive messages of equal length in a region.

    Raises UsageError for values that are not integers, and for messages outside of the region or longer than
    `most_bytes`.
    """
    starts, sizes = _integers("offsets", offsets), _integers("lengths", lengths)
    if starts.ndim != 1:
        raise UsageError(f"offsets: {starts.ndim} dimensions; give one offset for each message")
    if sizes.ndim and sizes.shape != starts.shape:
        raise UsageError(f"lengths: {sizes.size} of them for {len(starts)} messages; give one, or one for each")
    sizes = np.broadcast_to(sizes, starts.shape)
    if not len(starts):
        return
    if sizes.min() < 0 or sizes.max() > most_bytes:
        raise UsageError(
            f"lengths: {sizes.min()} to {sizes.max()} bytes; a batch takes 0 to {most_bytes}, a packet's worth"
        )
    if starts.min() < 0 or (starts > region.size_bytes - sizes).any():
        raise UsageError(
            f"offsets: bytes {starts.min()} to {int(starts.max()) + int(sizes.max())} "
            f"are not within a region of {region.size_bytes}"
        )
    addresses = starts.astype(np.uint64) + np.uint64(region.address)
    edges = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(sizes)]
    for first, end in pairwise(edges):
        yield addresses[first:end], int(sizes[first])


class MessageBatch:
    """Messages of one length that arrived together, in the memory where they landed.

    Use it as a context manager, or `release` it: until then the memory is not reused, and the sender lacks the credit.
    One that is dropped instead is released when it is garbage-collected, with a ResourceWarning.
    """

    def __init__(
        self,
        event: MessagesReceived,
        *,
        queues: RxQueueTable,
        release: Release,
    ) -> None:
        self._event = event
        self._queues = queues
        self._release = release
        self._released = False
        self.received = False
        """Whether the application has it: `Peer.recv_batch` sets it."""
        self._handed_out = 0  # messages taken singly
        self._outside = 0  # of these, those not released yet

    @property
    def count(self) -> int:
        """Number of messages."""
        return self._event.count

    @property
    def length(self) -> int:
        """Bytes of each message."""
        return self._event.length

    @property
    def immediate(self) -> int | None:
        """The 32-bit immediate of all the messages, or None."""
        return self._event.immediate

    @property
    def extents(self) -> tuple[Extent, ...]:
        """Where they lie. For the endpoint."""
        return (self._event.extent,)

    def move(self, extents: tuple[Extent, ...]) -> None:
        """Note where they lie now; before the application has any of them. For the endpoint."""
        self._event = replace(self._event, region_offset=extents[0].region_offset)

    def rows(self) -> npt.NDArray[np.uint8]:
        """Return the messages' memory as rows of bytes, without a copy. It is not reused while the array exists."""
        if self._released:
            raise UsageError("the batch was released: its memory may hold other messages by now")
        event = self._event
        memory = self._queues.view(event.extent)
        return np.frombuffer(memory, np.uint8).reshape(event.count, event.length)

    def release(self) -> None:
        """Release the memory and the credit. Further calls have no effect."""
        if not self._released:
            self._released = True
            self._release(*self._held)

    @property
    def _held(self) -> tuple[int, tuple[Extent], int, int]:
        """What is to be released: of which peer, memory, bytes and messages."""
        event = self._event
        return event.peer, (event.extent,), event.count * event.length, event.count

    @property
    def taken(self) -> bool:
        """Whether a message was taken out of the batch."""
        return self._handed_out > 0

    def take(self) -> tuple[Message, bool]:
        """Take the next message out of the batch; return it, and whether any is left.

        The batch is released when all its messages have been taken and released.
        """
        event, index = self._event, self._handed_out
        self._handed_out += 1
        self._outside += 1
        extent = Extent(0, event.region_offset + index * event.length, event.length)
        single = MessageReceived(
            event.peer, event.message + index & 0xFFFFFFFF, event.length, event.immediate, (extent,)
        )
        message = Message(single, queues=self._queues, release=self._take_back)
        return message, self._handed_out < event.count

    def abandon(self) -> None:
        """Abandon the messages not taken yet; the batch is released when the last of those taken is released."""
        self._handed_out = self._event.count
        if not self._outside:
            self.release()

    def _take_back(self, _peer: int, _extents: Sequence[Extent], _size_bytes: int, _messages: int) -> None:
        self._outside -= 1
        if not self._outside and self._handed_out == self._event.count:
            self.release()

    def __del__(self) -> None:
        if not self._released:
            self._queues.call_soon(partial(self._release, *self._held))
            if self.received:
                warn_dropped(self)

    def __repr__(self) -> str:
        return f"<MessageBatch of {self.count} messages of {self.length} bytes{', released' if self._released else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
