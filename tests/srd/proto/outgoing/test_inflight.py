"""The window of sent packets, against a plain model: a dictionary of all packets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from srd.proto.base.errors import PacketError
from srd.proto.outgoing.inflight import Inflight, InflightBurst, LostRange
from srd.proto.outgoing.message import OutgoingBatch, OutgoingMessage
from srd.proto.wire.data import HEADER_BYTES
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest

PACKET_BYTES = 1000


def message_of(packets: int, *, number: int = 0, packet_bytes: int = PACKET_BYTES) -> OutgoingMessage:
    segment_bytes = packet_bytes - HEADER_BYTES
    return OutgoingMessage(WorkRequest(number, packets * segment_bytes), number, segment_bytes=segment_bytes)


def batch_of(count: int, *, length: int = 100) -> OutgoingBatch:
    return OutgoingBatch(BatchRequest(1, np.zeros(count, np.uint64), length), 1)


class SentMachine(RuleBasedStateMachine):
    """Add PSN ranges, and acknowledge any sent packets, in any order and repeatedly."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = Inflight()
        self.owner: dict[int, tuple[OutgoingMessage, int]] = {}  # PSN -> (message, bytes)
        self.acknowledged: set[int] = set()
        self.messages: list[OutgoingMessage] = []
        self.reported: set[int] = set()

    @rule(
        counts=st.lists(st.integers(1, 20), min_size=1, max_size=3),
        size=st.integers(HEADER_BYTES + 1, 9000),
        cut=st.booleans(),
    )
    def add(self, counts: list[int], size: int, cut: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        packets = sum(counts) + (not cut)
        message = message_of(packets, number=len(self.messages), packet_bytes=size)
        self.messages.append(message)
        for count in counts:
            first = self.sent.next_psn
            psns = self.sent.add(message, count=count)
            assert (psns.first, psns.count) == (first, count)
            self.owner |= dict.fromkeys(range(first, first + count), (message, size))
        assert (message.left == 0) == cut

    @precondition(lambda self: self.owner)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        cumulative = data.draw(st.integers(0, len(self.owner)), "cumulative")
        span = len(self.owner) - cumulative
        bitmap = data.draw(st.integers(0, (1 << span) - 1), "bitmap") & ~1
        named = set(range(cumulative)) | {cumulative + i for i in range(span) if bitmap >> i & 1}
        new = named - self.acknowledged
        self.acknowledged |= named
        packets, size_bytes, done = self.sent.acknowledge(cumulative, bitmap=bitmap)
        assert packets == len(new)
        assert size_bytes == sum(self.owner[psn][1] for psn in new)
        requests = [message.number for message in done]
        assert len(set(requests)) == len(requests)
        assert not self.reported & set(requests), "a message completed twice"
        self.reported |= set(requests)
        touched = {self.owner[psn][0].number for psn in new}
        assert set(requests) == {r for r in touched if not self.messages[r].left and not self.open(r)}

    def open(self, request: int) -> set[int]:
        return {psn for psn, (message, _) in self.owner.items() if message.number == request} - self.acknowledged

    @rule(data=st.data())
    def false_ack(self, data: st.DataObject) -> None:
        beyond = data.draw(st.integers(1, 100))
        before = (self.sent.base, self.sent.acknowledged)
        with pytest.raises(PacketError, match=f"when {len(self.owner)} is next"):
            self.sent.acknowledge(len(self.owner) + beyond, bitmap=0)
        assert (self.sent.base, self.sent.acknowledged) == before

    @precondition(lambda self: self.owner)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(self.owner) - 1), "first")
        count = data.draw(st.integers(1, len(self.owner) - first), "count")
        missing = self.sent.missing(first, count=count)
        assert {first + i for i in range(count) if missing >> i & 1} == (
            set(range(first, first + count)) - self.acknowledged
        )
        assert missing < 1 << count

    @invariant()
    def window(self) -> None:
        assert self.sent.next_psn == len(self.owner)
        lowest = min(set(self.owner) - self.acknowledged, default=len(self.owner))
        assert self.sent.base <= lowest
        for message in self.messages:
            assert message.unacknowledged == len(self.open(message.number))


TestSentPackets = SentMachine.TestCase
TestSentPackets.settings = settings(max_examples=40, stateful_step_count=25)


def test_acknowledge__bitmap_beyond_what_was_sent() -> None:
    sent = Inflight()
    sent.add(message_of(4), count=4)
    with pytest.raises(PacketError, match="an ack of PSN 4, when 4 is next"):
        sent.acknowledge(0, bitmap=0b10000)
    assert sent.missing(0, count=4) == 0b1111


def test_inflight_burst__bytes_and_last_sequence() -> None:
    psns = Inflight().add(message_of(7), count=7)
    transmission = InflightBurst(psns, first=2, count=3, path_sequence=50, sent_at=10.0)
    assert (transmission.last_sequence, transmission.bytes) == (52, 3000)


@pytest.mark.parametrize(
    ("length", "first", "count", "full"),
    [
        (5 * 944, 0, 5, 5),
        (5 * 944 + 1, 0, 6, 5),
        (5 * 944 - 1, 0, 5, 4),
        (5 * 944 - 1, 0, 4, 4),
        (5 * 944 - 1, 1, 4, 3),
    ],
)
def test_full__a_messages_end_may_be_short(length: int, first: int, count: int, full: int) -> None:
    sent, message = Inflight(), OutgoingMessage(WorkRequest(1, length), 0, segment_bytes=944)
    if first:
        sent.add(message, count=first)
    psns = sent.add(message, count=count)
    assert psns.full(first, count=count) == full
    assert psns.full(first + count - 1, count=1) == (full == count)
    assert psns.full(first + 1, count=1) == 1
    message.aborted = True
    assert psns.full(first, count=count) == 0


def test_full__a_batch_has_no_short_end_and_what_carries_nothing_no_size() -> None:
    empty = OutgoingMessage(WorkRequest(2, 0), 1, segment_bytes=944)
    assert Inflight().add(batch_of(8), count=8).full(0, count=8) == 8
    assert Inflight().add(empty, count=1).full(0, count=1) == 0
    assert Inflight().add(batch_of(8, length=0), count=8).full(0, count=8) == 0


def test_refused__of_a_message_and_of_one_of_a_batch() -> None:
    sent, message, many = Inflight(), message_of(2), batch_of(8)
    one = sent.add(message, count=2)
    sent.add(many, count=2)
    batch = sent.add(many, count=4)
    assert [psns.refused(psns.first, missing=0b1111) for psns in (one, batch)] == [0, 0]
    many.refuse(many.number + 3, status=Status.REMOTE_ERROR_RNR)
    assert (one.refused(0, missing=0b11), batch.refused(4, missing=0b1011)) == (0, 0b10)
    assert (batch.refused(6, missing=0b11), batch.refused(5, missing=0b1)) == (0, 1)
    assert (batch.full(4, count=1), batch.full(5, count=1)) == (1, 0)
    message.refuse(message.number, status=Status.REMOTE_ERROR_RNR)
    assert one.refused(0, missing=0b10) == 0b10


def test_acknowledge__of_a_batch_with_a_refused_message() -> None:
    sent, many = Inflight(), batch_of(4)
    sent.add(many, count=4)
    many.refuse(many.number + 1, status=Status.REMOTE_ERROR_RNR)
    assert sent.acknowledge(4, bitmap=0) == (4, 4 * (100 + HEADER_BYTES), [many])
    assert many.open_requests == []


def test_add_abort__is_a_header_that_goes_first() -> None:
    sent, message = Inflight(), message_of(9)
    sent.add(message, count=2)
    sent.lost.append(LostRange(sent.add(message, count=1), 2, 1, 0))
    sent.add_abort(message)
    assert [(lost.first, lost.psns.packet_bytes, lost.path) for lost in sent.lost] == [
        (3, HEADER_BYTES, None), (2, PACKET_BYTES, 0)
    ]  # fmt: skip
    assert (sent.unsent, message.end_psn, message.packetized) == ((3,), 4, 3)
