"""One stream, without I/O: the states of its two directions, what arrives for it, and what it has to post.

    command          `write`, `write_eof`, `close`, `abort`, `take`
    in               `on_frame_untrusted`, `on_acknowledged`
    out              `poll`
    look             `sending`, `receiving`, `over`

The states are those of RFC 9000, section 3, without those that exist for retransmission, which is below messages here.
A direction that has ended never changes again; a stream is over when both have.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Final

from srd.streams.halves import Bytes, OutgoingFrame, ReceiveHalf, SendHalf
from srd.streams.wire import Frame, FrameKind


class DirectionState(Enum):
    """Of a direction."""

    OPEN = auto()
    ENDING = auto()
    """Its end is known, and not everything before it has arrived."""
    ENDED = auto()


class DirectionEvent(Enum):
    """What may happen to a direction."""

    END = auto()
    """Sending: no more is written. Receiving: the end is known."""
    COMPLETE = auto()
    """Sending: all is acknowledged. Receiving: all was taken."""
    STOP = auto()
    """The reader of the direction reads no more."""
    RESET = auto()
    """Either end has given the stream up."""


TRANSITIONS: Final = {
    (DirectionState.OPEN, DirectionEvent.END): DirectionState.ENDING,
    (DirectionState.OPEN, DirectionEvent.STOP): DirectionState.ENDED,
    (DirectionState.OPEN, DirectionEvent.RESET): DirectionState.ENDED,
    (DirectionState.ENDING, DirectionEvent.END): DirectionState.ENDING,
    (DirectionState.ENDING, DirectionEvent.COMPLETE): DirectionState.ENDED,
    (DirectionState.ENDING, DirectionEvent.STOP): DirectionState.ENDED,
    (DirectionState.ENDING, DirectionEvent.RESET): DirectionState.ENDED,
    (DirectionState.ENDED, DirectionEvent.END): DirectionState.ENDED,
    (DirectionState.ENDED, DirectionEvent.COMPLETE): DirectionState.ENDED,
    (DirectionState.ENDED, DirectionEvent.STOP): DirectionState.ENDED,
    (DirectionState.ENDED, DirectionEvent.RESET): DirectionState.ENDED,
}
"""The same for both directions. Missing: an open direction cannot be complete."""


class Stream:
    """Both directions of a stream."""

    __slots__ = ("_due", "number", "receive", "receiving", "send", "sending", "was_reset")

    def __init__(self, number: int, *, window_bytes: int, piece_bytes: int) -> None:
        self.number = number
        self.send = SendHalf(piece_bytes=piece_bytes)
        self.receive = ReceiveHalf(window_bytes=window_bytes)
        self.sending = self.receiving = DirectionState.OPEN
        self.was_reset = False
        self._due: deque[OutgoingFrame] = deque()  # control messages

    def _on_sending(self, event: DirectionEvent) -> None:
        self.sending = TRANSITIONS[self.sending, event]
        if self.sending is DirectionState.ENDED:
            self.send.discard()

    def _on_receiving(self, event: DirectionEvent) -> None:
        self.receiving = TRANSITIONS[self.receiving, event]

    @property
    def over(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.sending is DirectionState.ENDED and self.receiving is DirectionState.ENDED and not self._due

    # -- commands -----------------------------------------------------------------------------------------------------

    def write(self, data: Bytes) -> None:
        """Send bytes, which must not change; after the direction's end they go nowhere."""
        if self.sending is DirectionState.OPEN:
            self.send.write(data)

    def write_eof(self) -> None:
        """Send no more; go on reading."""
        if self.sending is DirectionState.OPEN:
            self.send.finish()
            self._on_sending(DirectionEvent.END)

    def close(self) -> None:
        """Read no more, and end once everything written has arrived."""
        self.write_eof()
        if self.receiving is not DirectionState.ENDED:
            self._on_receiving(DirectionEvent.STOP)
            self._due.append(OutgoingFrame(FrameKind.STOP, 0))

    def abort(self) -> None:
        """Give it up at once, at both ends."""
        if not self.over:
            self.reset()
            self._due.append(OutgoingFrame(FrameKind.RESET, 0))

    def reset(self) -> None:
        """End both directions here."""
        self.was_reset = self.was_reset or not self.over
        self._due.clear()
        self._on_sending(DirectionEvent.RESET)
        self._on_receiving(DirectionEvent.RESET)

    def take(self) -> bytes | None:
        """Return the next bytes in order; None: there are none, yet or ever."""
        data = self.receive.take() if self.receiving is not DirectionState.ENDED else None
        if self.receive.at_end and self.receiving is DirectionState.ENDING:
            self._on_receiving(DirectionEvent.COMPLETE)
        return data

    # -- in -----------------------------------------------------------------------------------------------------------

    def on_frame_untrusted(self, frame: Frame, payload: bytes) -> None:
        """Process a message of the other end. Raises PacketError for what no conforming one sends."""
        match frame.kind:
            case FrameKind.DATA:
                if self.receiving is not DirectionState.ENDED:
                    self.receive.on_data_untrusted(frame.offset, payload)
            case FrameKind.LIMIT:
                if self.sending is not DirectionState.ENDED:
                    self.send.on_limit_untrusted(frame.offset)
            case FrameKind.EOF:
                if self.receiving is not DirectionState.ENDED:
                    self.receive.on_end_untrusted(frame.offset)
                self._on_receiving(DirectionEvent.END)
            case FrameKind.STOP:
                self._on_sending(DirectionEvent.STOP)
            case FrameKind.RESET:
                self.reset()

    def on_acknowledged(self, message: OutgoingFrame) -> None:
        """Take note that a message that was polled has arrived."""
        self.send.on_acknowledged(message)
        if self.sending is DirectionState.ENDING and self.send.all_acknowledged:
            self._on_sending(DirectionEvent.COMPLETE)

    # -- out ----------------------------------------------------------------------------------------------------------

    def poll(self) -> OutgoingFrame | None:
        """Return the next message to post; None: nothing is due, or it has to wait for a limit."""
        if self._due:
            return self._due.popleft()
        if self.receiving is not DirectionState.ENDED and (grant := self.receive.next_limit()) is not None:
            return grant
        return self.send.poll() if self.sending is not DirectionState.ENDED else None
