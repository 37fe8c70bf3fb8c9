"""A stream as asyncio's transport: what StreamReader and StreamWriter stand on.

It behaves as a TCP connection's, with these differences: the end of what was written is known to have arrived when
`connection_lost` is called (so `wait_closed` says it), and a write to an end that reads no more goes nowhere instead
of destroying what that end has still sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from srd.errors import PeerError, RequestError, UsageError
from srd.notify import Notify
from srd.proto.wire.status import Status
from srd.streams.halves import OutgoingFrame
from srd.streams.stream import Stream
from srd.streams.wire import Frame

HIGH_WATER_BYTES: Final = 64 << 10
"""asyncio's own: written and not posted bytes from which on `drain` waits; a quarter of it, and it goes on."""

Post = Callable[[int, OutgoingFrame], "asyncio.Future[Status] | None"]
"""Posts a message of a stream, by its number; None: the peer has ended, or is being closed."""


class StreamTransport(asyncio.Transport):
    """One stream of a peer, as a transport."""

    def __init__(self, stream: Stream, *, post: Post, on_over: Callable[[int], None], extra: dict[str, Any]) -> None:
        super().__init__(extra)
        self._stream = stream
        self._post = post
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        self._protocol = asyncio.Protocol()  # does nothing, until `start`
        self._flush_due = False
        self._reading_paused = self._writing_paused = False
        self._eof_told = False
        self._closing = False  # `close` or `abort` was called, or the stream has ended
        self._lost = False  # `connection_lost` is called next
        self._lost_told = False
        self._told = Notify()
        self._eof_written = False
        self._reason: tuple[str, Exception | None] | None = None  # why it was reset, unless this end has given it up
        self._peer_ended = False
        self.set_write_buffer_limits()

    def start(self, protocol: asyncio.Protocol) -> None:
        """Begin to call `protocol`, first with what has arrived before."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._on_arrived()

    # -- what asyncio calls: reading ----------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        """Whether bytes that arrive are given to the protocol."""
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        """Give the protocol no bytes; the other end may send until its limit."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Give the protocol bytes again."""
        if self._reading_paused:
            self._reading_paused = False
            self._loop.call_soon(self._deliver)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Set the protocol."""
        if not isinstance(protocol, asyncio.Protocol):
            raise UsageError(f"protocol: {protocol!r} is no asyncio.Protocol")
        self._protocol = protocol

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, together with what else is written before the loop's next iteration."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data: a bytes-like object is required, not {type(data).__name__}")
        if self._eof_written:
            raise RuntimeError("write() after write_eof()")
        self._stream.write(data if isinstance(data, bytes) else bytes(data))
        self._flush_soon()
        if self.get_write_buffer_size() > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """Half close exists."""
        return True

    def write_eof(self) -> None:
        """End what is written, and go on reading."""
        self._eof_written = True
        self._stream.write_eof()
        self._flush_soon()

    def get_write_buffer_size(self) -> int:
        """Bytes that were written and not posted; what is posted is bounded by the other end's limit."""
        return self._stream.send.buffered_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high water mark."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the water marks between which `drain` waits."""
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    def is_closing(self) -> bool:
        """Whether it is closed, or being closed."""
        return self._closing

    def close(self) -> None:
        """Read no more, and end once everything written has arrived."""
        if not self._closing:
            self._closing = True
            self._stream.close()
            self._flush_soon()

    def abort(self) -> None:
        """Give the stream up at once, at both ends."""
        self._closing = True
        self._stream.abort()
        self.flush()

    # -- what the stream does -----------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Post what may be posted."""
        self._flush_due = False
        while not self._peer_ended and (message := self._stream.poll()) is not None:
            if (future := self._post(self._stream.number, message)) is None:
                break
            future.add_done_callback(partial(self._on_completed, message))
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()
        self._end_if_over()

    def _on_completed(self, message: OutgoingFrame, future: asyncio.Future[Status]) -> None:
        status = Status.FLUSHED if future.cancelled() else future.result()
        if status is Status.OK:
            self._stream.on_acknowledged(message)
            self.flush()
        elif not self._peer_ended and not self._stream.over:
            reason = f"stream {self._stream.number}: a message failed: {status.name}"
            self._reason = (reason, RequestError(reason, status=status))
            self.abort()

    def on_frame_untrusted(self, frame: Frame, payload: bytes) -> None:
        """Process a message of the other end. Raises PacketError for what no conforming one sends."""
        self._stream.on_frame_untrusted(frame, payload)
        self._on_arrived()

    def _on_arrived(self) -> None:
        if self._stream.was_reset and not self._closing:
            self._reason = (f"stream {self._stream.number}: reset by the other end", None)
        self._deliver()

    def on_peer_ended(self, error: PeerError) -> None:
        """Take note that nothing more arrives or leaves."""
        self._peer_ended = True
        # Messages may have been acknowledged just before, and the loop has not called `_on_completed` yet: it does so
        # before this, or bytes that have arrived would be reported as lost.
        self._loop.call_soon(self._end_with_peer, error)

    def _end_with_peer(self, error: PeerError) -> None:
        if not self._stream.over and (self._stream.send.has_undelivered or not self._stream.receive.complete):
            self._reason = (str(error), error)
        if not self._stream.receive.complete:
            self._stream.reset()
        self._deliver()

    def _deliver(self) -> None:
        """Give the protocol what has arrived, in order."""
        while not (self._reading_paused or self._closing) and (data := self._stream.take()) is not None:
            self._protocol.data_received(data)
        if self._stream.receive.at_end and not (self._eof_told or self._closing):
            self._eof_told = True
            if not self._protocol.eof_received():
                self.close()
        self.flush()

    def _end_if_over(self) -> None:
        """Tell the protocol once the stream is over, and all of it was read."""
        ended_with_peer = self._peer_ended and (self._closing or self._eof_told)
        if self._lost or not (self._stream.over or ended_with_peer):
            return
        self._lost = self._closing = True
        self._on_over(self._stream.number)
        self._loop.call_soon(self._tell_lost)

    def _tell_lost(self) -> None:
        error: ConnectionResetError | None = None
        if self._reason is not None:
            error = ConnectionResetError(self._reason[0])
            error.__cause__ = self._reason[1]
        self._protocol.connection_lost(error)
        self._lost_told = True
        self._told.notify()

    async def wait_lost(self) -> None:
        """Wait until the protocol's `connection_lost` was called."""
        while not self._lost_told:
            await self._told.wait()

    def __repr__(self) -> str:
        state = f"sending {self._stream.sending.name}, receiving {self._stream.receiving.name}"
        return f"<StreamTransport {self._stream.number}, {state}>"


class StreamWriter(asyncio.StreamWriter):
    """asyncio's, whose `wait_closed` may be cancelled and called again.

    asyncio's own waits for a future of the protocol, which is cancelled with it.
    """

    def __init__(
        self,
        transport: StreamTransport,
        *,
        protocol: asyncio.StreamReaderProtocol,
        reader: asyncio.StreamReader,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(transport, protocol, reader, loop)
        self._lost = transport.wait_lost

    async def wait_closed(self) -> None:
        """Wait until all of what was written has arrived. Raises ConnectionResetError if it has not."""
        await self._lost()
        await super().wait_closed()
