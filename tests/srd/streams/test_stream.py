"""srd.streams.stream: the states as a table, and two ends over a network that reorders, in virtual time."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from srd.streams.halves import OutgoingFrame
from srd.streams.stream import DirectionState, Stream
from srd.streams.wire import INITIAL_WINDOW_BYTES, MAX_PIECES, Frame, FrameKind

WINDOW = INITIAL_WINDOW_BYTES
PIECE = 9000


def stream() -> Stream:
    return Stream(4, window_bytes=WINDOW, piece_bytes=PIECE)


def frame(message: OutgoingFrame) -> Frame:
    return Frame(message.kind, 4, message.offset)


def polled(end: Stream) -> list[OutgoingFrame]:
    return list(iter(end.poll, None))


# -- the commands ---------------------------------------------------------------------------------------------------


def test_close__after_the_end_still_tells_that_nothing_is_read() -> None:
    one = stream()
    one.write_eof()
    for message in polled(one):
        one.on_acknowledged(message)
    one.close()
    assert [message.kind for message in polled(one)] == [FrameKind.STOP]
    assert one.over


def test_close__what_the_other_end_has_read_to_the_end_needs_no_stop() -> None:
    one = stream()
    one.on_frame_untrusted(Frame(FrameKind.EOF, 4, 0), b"")
    assert one.take() is None
    one.close()
    assert [message.kind for message in polled(one)] == [FrameKind.EOF]


def test_stop__what_was_not_sent_is_discarded() -> None:
    one = stream()
    one.write(bytes(2 * WINDOW))
    polled(one)
    one.on_frame_untrusted(Frame(FrameKind.STOP, 4, 0), b"")
    assert (one.sending, one.send.buffered_bytes, polled(one)) == (DirectionState.ENDED, 0, [])


def test_abort__is_told_once() -> None:
    one, two = stream(), stream()
    one.write(bytes(100))
    one.abort()
    one.abort()
    (message,) = polled(one)
    two.on_frame_untrusted(frame(message), b"")
    assert one.over
    assert two.over
    assert two.was_reset
    two.abort()
    assert polled(two) == []


# -- two ends -------------------------------------------------------------------------------------------------------


class TwoEnds(RuleBasedStateMachine):
    """Messages arrive in any order, and are acknowledged later in any order; nothing is lost (the transport's part)."""

    @initialize(near_the_wrap=st.booleans())
    def begin(self, near_the_wrap: bool) -> None:  # noqa: FBT001
        self.ends = [stream(), stream()]
        start = (1 << 32) - 20_000 if near_the_wrap else 0
        for end in self.ends:
            end.send.offset, end.send.limit = start, start + INITIAL_WINDOW_BYTES
            end.receive.offset = end.receive.taken = end.receive._highest = start
            end.receive.limit = start + WINDOW
        self.written = [bytearray(), bytearray()]
        self.read = [bytearray(), bytearray()]  # by the end of that number
        self.ended = [False, False]  # writes no more
        self.stopped = [False, False]  # reads no more
        self.aborted = False
        self.flying: list[tuple[int, OutgoingFrame]] = []  # from the end of that number
        self.landed: list[tuple[int, OutgoingFrame]] = []

    def _poll(self) -> None:
        for number, end in enumerate(self.ends):
            messages = polled(end)
            assert all(len(message.payload) <= PIECE for message in messages)
            self.flying += [(number, message) for message in messages]

    def _arrive(self, number: int, message: OutgoingFrame) -> None:
        self.ends[1 - number].on_frame_untrusted(frame(message), bytes(message.payload))
        self.landed.append((number, message))

    @rule(number=st.integers(0, 1), size=st.integers(1, 30_000), fill=st.integers(0, 255))
    def write(self, number: int, size: int, fill: int) -> None:
        if not self.ended[number]:
            data = bytes([fill]) * size
            self.ends[number].write(data)
            self.written[number] += data
            self._poll()

    @rule(number=st.integers(0, 1))
    def write_eof(self, number: int) -> None:
        self.ended[number] = True
        self.ends[number].write_eof()
        self._poll()

    @rule(number=st.integers(0, 1))
    def close(self, number: int) -> None:
        self.ended[number] = self.stopped[number] = True
        self.ends[number].close()
        self._poll()

    @rule(number=st.integers(0, 1), likely=st.integers(0, 9))
    def abort(self, number: int, likely: int) -> None:
        if likely == 0:
            self.aborted = True
            self.ends[number].abort()
            self._poll()

    @rule(number=st.integers(0, 1))
    def take(self, number: int) -> None:
        while (data := self.ends[number].take()) is not None:
            at = len(self.read[number])
            assert self.written[1 - number][at : at + len(data)] == data, "what is read was written, in order"
            self.read[number] += data
        self._poll()

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), count=st.integers(1, 8))
    def arrive(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.flying))):
            self._arrive(*self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1))))
        self._poll()

    @precondition(lambda self: self.landed)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        number, message = self.landed.pop(data.draw(st.integers(0, len(self.landed) - 1)))
        self.ends[number].on_acknowledged(message)
        self._poll()

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "ends"):
            for end in self.ends:
                half = end.receive
                assert sum(map(len, half._pieces.values())) + sum(map(len, half._ready)) <= WINDOW
                assert len(half._starts) == len(half._pieces) < MAX_PIECES

    def teardown(self) -> None:
        """Everything arrives and is read: what was written is there, and what was closed is over."""
        if not hasattr(self, "ends"):
            return
        for number in range(2):
            self.write_eof(number)
        for number in range(2):
            self.take(number)
        while self.flying or self.landed:
            while self.flying:
                self._arrive(*self.flying.pop())
            for number, message in self.landed:
                self.ends[number].on_acknowledged(message)
            self.landed.clear()
            for number in range(2):
                self.take(number)
        assert all(end.over for end in self.ends)
        for number in range(2):
            if not (self.aborted or self.stopped[number]):
                assert self.read[number] == self.written[1 - number]


TestTwoEnds = TwoEnds.TestCase
TestTwoEnds.settings = settings(
    deadline=None, stateful_step_count=30, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
