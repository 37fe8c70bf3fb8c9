"""The two directions of a stream, without I/O: what may be sent, and what has arrived, put in order.

Rules.
1. Offsets count the stream's bytes from 0 and do not wrap; the wire carries their low 32 bits.
2. A sender keeps below the receiver's limit, and has at most `MAX_PIECES` messages from the lowest one that is not
   acknowledged. So what a receiver keeps is bounded, in bytes and in pieces, and anything beyond is a violation.
3. The transport delivers every message at most once, so bytes that arrive twice are a violation, too.
4. A receiver's limit is what was taken, and the window. It is announced again when half of the window is used up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final

from srd.errors import PacketError
from srd.streams.wire import INITIAL_WINDOW_BYTES, MAX_AHEAD, MAX_PIECES, FrameKind, ahead, low_bits

Bytes = bytes | memoryview
MERGED_BYTES: Final = 4096
"""Bytes that arrived in order, and were not taken, are kept in pieces of so many at least, or in those in which they
came: an object for each byte would take fifty times the window."""


class OutgoingFrame:
    """A message to post; `acknowledged` once it is."""

    __slots__ = ("acknowledged", "kind", "offset", "payload")

    def __init__(self, kind: FrameKind, offset: int, payload: Bytes = b"") -> None:
        self.kind = kind
        self.offset = low_bits(offset)
        self.payload = payload
        self.acknowledged = False


class SendHalf:
    """What was written, and how much of it may be sent."""

    __slots__ = ("_end_posted", "_ended", "_piece_bytes", "_posted", "_waiting", "buffered_bytes", "limit", "offset")

    def __init__(self, *, piece_bytes: int) -> None:
        self.offset = 0  # of the next byte to post
        self.limit = INITIAL_WINDOW_BYTES
        self.buffered_bytes = 0  # written and not posted
        self._piece_bytes = piece_bytes  # longest message
        self._waiting: deque[Bytes] = deque()
        self._posted: deque[OutgoingFrame] = deque()  # from the first that is not acknowledged on
        self._ended = False  # no more is written
        self._end_posted = False

    def write(self, data: Bytes) -> None:
        """Append bytes, which must not change."""
        if len(data):
            self._waiting.append(data)
            self.buffered_bytes += len(data)

    def finish(self) -> None:
        """End the bytes."""
        self._ended = True

    def discard(self) -> None:
        """Forget what was not posted."""
        self._waiting.clear()
        self.buffered_bytes = 0

    def on_limit_untrusted(self, offset: int) -> None:
        """Take note of a limit; an older one is ignored, as messages overtake each other. Raises PacketError."""
        by = ahead(offset, of=self.limit)
        if by >> 31:
            return
        if self.limit + by - self.offset > MAX_AHEAD:
            raise PacketError(f"a limit {self.limit + by - self.offset} bytes ahead of what was sent")
        self.limit += by

    def on_acknowledged(self, message: OutgoingFrame) -> None:
        """Take note that a message has arrived."""
        message.acknowledged = True
        while self._posted and self._posted[0].acknowledged:
            self._posted.popleft()

    @property
    def all_acknowledged(self) -> bool:
        """Whether everything has arrived, the end as well."""
        return self._end_posted and not self._posted and not self.buffered_bytes

    @property
    def has_undelivered(self) -> bool:
        """Whether bytes were written of which it is not known that they have arrived."""
        return bool(self.buffered_bytes) or any(message.kind is FrameKind.DATA for message in self._posted)

    def poll(self) -> OutgoingFrame | None:
        """Return the next message that may be posted; None: there is nothing, or it has to wait."""
        if self._ended and not self._end_posted and self.buffered_bytes < MAX_AHEAD:
            self._end_posted = True
            return self._post(OutgoingFrame(FrameKind.EOF, self.offset + self.buffered_bytes))
        size = min(self._piece_bytes, self.limit - self.offset, self.buffered_bytes)
        if size <= 0 or len(self._posted) >= MAX_PIECES:
            return None
        message = self._post(OutgoingFrame(FrameKind.DATA, self.offset, self._pop(size)))
        self.offset += size
        return message

    def _post(self, message: OutgoingFrame) -> OutgoingFrame:
        self._posted.append(message)
        return message

    def _pop(self, size: int) -> Bytes:
        """Take bytes off the front; neighbouring short writes become one message."""
        self.buffered_bytes -= size
        first = self._waiting.popleft()
        if len(first) > size:
            self._waiting.appendleft(memoryview(first)[size:])
            return memoryview(first)[:size]
        parts = [first]
        left = size - len(first)
        while left:
            part = self._waiting.popleft()
            if len(part) > left:
                self._waiting.appendleft(memoryview(part)[left:])
                part = memoryview(part)[:left]
            parts.append(part)
            left -= len(part)
        return b"".join(parts) if len(parts) > 1 else first


class ReceiveHalf:
    """What has arrived, in order."""

    __slots__ = ("_highest", "_pieces", "_ready", "_starts", "_window_bytes", "end", "limit", "offset", "taken")

    def __init__(self, *, window_bytes: int) -> None:
        self._window_bytes = window_bytes
        self.limit = window_bytes
        self.offset = 0  # all bytes below have arrived
        self.taken = 0  # of these, taken
        self.end: int | None = None  # where the bytes end, once it is known
        self._highest = 0
        self._ready: deque[bytes] = deque()
        self._pieces: dict[int, bytes] = {}  # that arrived before others, by offset
        self._starts: list[int] = []  # of these, in order

    def widen(self, window_bytes: int) -> None:
        """Set the window, before anything was taken; it must not shrink."""
        self._window_bytes = self.limit = window_bytes

    def on_data_untrusted(self, offset: int, data: bytes) -> None:
        """Accept bytes. Raises PacketError: beyond the limit or the end, twice, or in too many pieces."""
        start = self.offset + ahead(offset, of=self.offset)
        end = start + len(data)
        if end > (self.limit if self.end is None else min(self.limit, self.end)):
            raise PacketError(f"bytes {start} to {end} of a stream, beyond its limit or end")
        at = bisect_left(self._starts, start)
        before, after = self._starts[max(at - 1, 0) : at], self._starts[at : at + 1]
        if (after and after[0] < end) or (before and before[0] + len(self._pieces[before[0]]) > start):
            raise PacketError(f"bytes {start} to {end} of a stream, which have arrived")
        self._highest = max(self._highest, end)
        if start > self.offset:
            if len(self._starts) >= MAX_PIECES:
                raise PacketError(f"more than {MAX_PIECES} pieces of a stream out of order")
            self._starts.insert(at, start)
            self._pieces[start] = data
            return
        self._append(data)
        count = 0
        while count < len(self._starts) and self._starts[count] == self.offset:
            self._append(self._pieces.pop(self.offset))
            count += 1
        del self._starts[:count]

    def _append(self, data: bytes) -> None:
        self.offset += len(data)
        if self._ready and len(self._ready[-1]) + len(data) <= MERGED_BYTES:
            data = self._ready.pop() + data
        self._ready.append(data)

    def on_end_untrusted(self, offset: int) -> None:
        """Take note of where the bytes end. Raises PacketError if more have arrived, or it was somewhere else."""
        end = self.offset + ahead(offset, of=self.offset)
        if end < self._highest or end - self.offset > 2 * MAX_AHEAD or self.end not in {None, end}:
            raise PacketError(f"the end of a stream at {end}, which contradicts what has arrived")
        self.end = end

    def take(self) -> bytes | None:
        """Return the next bytes in order; None: there are none, yet or ever."""
        if not self._ready:
            return None
        data = self._ready.popleft()
        self.taken += len(data)
        return data

    @property
    def complete(self) -> bool:
        """Whether all bytes up to the end have arrived."""
        return self.end is not None and self.offset == self.end

    @property
    def at_end(self) -> bool:
        """Whether all bytes up to the end were taken."""
        return self.end is not None and self.taken == self.end

    def next_limit(self) -> OutgoingFrame | None:
        """Return the message that grants more, once it is worth one."""
        limit = self.taken + self._window_bytes
        if limit - self.limit < self._window_bytes // 2 or (self.end is not None and self.end <= self.limit):
            return None
        self.limit = limit
        return OutgoingFrame(FrameKind.LIMIT, limit)
