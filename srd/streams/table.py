"""All streams of one peer: opening, accepting, and which stream a message belongs to.

Rules.
1. Each end numbers the streams that it opens: twice the count of those before, and 1 at the end that accepted it.
2. A LIMIT opens a stream, and accepts one. An end has at most `BACKLOG` streams open that were not accepted yet.
3. What arrives is copied out of the receive region at once, so that streams never pin it: a message of one byte would
   pin a whole chunk. A stream takes at most `INITIAL_WINDOW_BYTES` until it is accepted, and at most
   `EndpointConfig.stream_window_bytes` after that.
4. A message for a stream that is over is dropped: the other end may not know yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from srd.errors import PacketError, PeerError
from srd.message import Message
from srd.notify import Notify
from srd.proto.base.seqset import SequenceSet
from srd.proto.wire.status import Status
from srd.streams.halves import OutgoingFrame
from srd.streams.stream import Stream
from srd.streams.transport import StreamTransport, StreamWriter
from srd.streams.wire import BACKLOG, INITIAL_WINDOW_BYTES, Frame, FrameKind, frame_untrusted

MAX_PIECE_BYTES: Final = 128 << 10
"""Longest message of a stream: several in a window, so that one that is lost does not stop it."""
READER_LIMIT_BYTES: Final = 64 << 10
"""asyncio's own default of `limit`: a reader that holds twice as much takes no more."""

Post = Callable[[int, OutgoingFrame], "asyncio.Future[Status] | None"]
ReaderWriter = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Streams:
    """The streams of a peer."""

    def __init__(
        self, *, is_acceptor: bool, window_bytes: int, piece_bytes: int, post: Post, extra: dict[str, Any]
    ) -> None:
        """Create the table; `post` a message of a stream, or return None if that cannot be any more.

        `extra`: what `get_extra_info` gives.
        """
        self._side = int(is_acceptor)
        self._window_bytes = window_bytes
        self._piece_bytes = min(piece_bytes, MAX_PIECE_BYTES)
        self._post = post
        self._extra = extra
        self._open: dict[int, StreamTransport] = {}
        self._opened = 0  # streams, by this end
        self._unaccepted: set[int] = set()  # of these
        self._pending: dict[int, Stream] = {}  # opened by the other end and not accepted yet, in order of arrival
        self._accepted = 0  # of these, in all
        self._known = SequenceSet()  # of these, by count: all that were ever seen
        self._end: PeerError | None = None
        self._changed = Notify()

    # -- opening and accepting ----------------------------------------------------------------------------------------

    async def open(self, *, limit: int) -> ReaderWriter:
        """Open a stream, once the other end has accepted enough. Raises PeerError."""
        while self._end is None and len(self._unaccepted) >= BACKLOG:
            await self._changed.wait()
        if self._end is not None:
            raise self._end
        number = 2 * self._opened + self._side
        self._opened += 1
        self._unaccepted.add(number)
        stream = Stream(number, window_bytes=self._window_bytes, piece_bytes=self._piece_bytes)
        _, reader, writer = self._use(stream, limit=limit)
        return reader, writer

    async def accept(self, *, limit: int) -> ReaderWriter:
        """Return the next stream that the other end has opened. Raises PeerError when the peer has ended."""
        while not self._pending:
            if self._end is not None:
                raise self._end
            await self._changed.wait()
        stream = self._pending.pop(next(iter(self._pending)))
        self._accepted += 1
        stream.receive.widen(self._window_bytes)
        transport, reader, writer = self._use(stream, limit=limit)
        if self._end is not None:
            transport.on_peer_ended(self._end)
        return reader, writer

    def _use(self, stream: Stream, *, limit: int) -> tuple[StreamTransport, asyncio.StreamReader, asyncio.StreamWriter]:
        """Tell the other end of a stream what it may send, and give the application what has arrived."""
        loop = asyncio.get_running_loop()
        extra = {**self._extra, "stream": stream.number}
        transport = StreamTransport(stream, post=self._post, on_over=self._on_over, extra=extra)
        self._open[stream.number] = transport
        self._post(stream.number, OutgoingFrame(FrameKind.LIMIT, self._window_bytes))
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport.start(protocol)
        return transport, reader, StreamWriter(transport, protocol=protocol, reader=reader, loop=loop)

    def _on_over(self, number: int) -> None:
        self._open.pop(number, None)

    # -- what arrives -------------------------------------------------------------------------------------------------

    def on_message_untrusted(self, message: Message, *, key: int) -> None:
        """Process a message of a stream. Raises PacketError for what no conforming end sends; it is released."""
        try:
            frame = frame_untrusted(key, immediate=message.immediate, length=message.length)
            if frame.stream & 1 == self._side:
                self._check_own_untrusted(frame)
            else:
                self._check_other_untrusted(frame)
            if (transport := self._open.get(frame.stream)) is not None:
                transport.on_frame_untrusted(frame, message.gather())
            elif (pending := self._pending.get(frame.stream)) is not None:
                pending.on_frame_untrusted(frame, message.gather())
        finally:
            message.release()

    def _check_own_untrusted(self, frame: Frame) -> None:
        """Check a message of a stream that this end has opened, or would have."""
        if frame.stream >> 1 >= self._opened:
            raise PacketError(f"a {frame.kind.name} of stream {frame.stream}, which was never opened")
        if frame.kind is FrameKind.LIMIT and frame.stream in self._unaccepted:
            self._unaccepted.remove(frame.stream)
            self._changed.notify()

    def _check_other_untrusted(self, frame: Frame) -> None:
        """Check a message of a stream that the other end has opened; the first one opens it here."""
        count = frame.stream >> 1
        if count >= self._accepted + BACKLOG:
            raise PacketError(f"stream {frame.stream}, with {self._accepted} of {BACKLOG} and more accepted")
        if self._known.insert(count, count=1):
            self._pending[frame.stream] = Stream(
                frame.stream, window_bytes=INITIAL_WINDOW_BYTES, piece_bytes=self._piece_bytes
            )
            self._changed.notify()

    @property
    def count(self) -> int:
        """Streams that are open."""
        return len(self._open)

    def flush(self) -> None:
        """Post what was written and may be sent."""
        for transport in list(self._open.values()):
            transport.flush()

    # -- the end ------------------------------------------------------------------------------------------------------

    def on_peer_ended(self, error: PeerError) -> None:
        """End all streams; those that are complete, and were not accepted yet, still can be."""
        self._end = error
        for transport in list(self._open.values()):
            transport.on_peer_ended(error)
        self._changed.notify()

    def forget_pending(self) -> None:
        """Forget the streams that were never accepted."""
        self._pending.clear()
