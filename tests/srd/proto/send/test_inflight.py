"""The window of sent packets, against a plain model: a dictionary of all packets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from srd.proto.errors import PacketError
from srd.proto.send.batch import SendBatch
from srd.proto.send.inflight import Inflight, InflightBurst
from srd.proto.send.work_queue import WorkQueueEntry
from srd.proto.wire.status import Status


def wqe(number: int = 0, *, length: int = 1000) -> WorkQueueEntry:
    return WorkQueueEntry(request=number, message=number, payload_offset=0, length=length, immediate=0)


class SentMachine(RuleBasedStateMachine):
    """Add PSN ranges, and acknowledge any sent packets, in any order and repeatedly."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = Inflight()
        self.owner: dict[int, tuple[WorkQueueEntry, int]] = {}  # PSN -> (message, bytes)
        self.acknowledged: set[int] = set()
        self.messages: list[WorkQueueEntry] = []
        self.reported: set[int] = set()

    @rule(counts=st.lists(st.integers(1, 20), min_size=1, max_size=3), size=st.integers(56, 9000), cut=st.booleans())
    def add(self, counts: list[int], size: int, cut: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        message = wqe(len(self.messages))
        self.messages.append(message)
        for count in counts:
            first = self.sent.next_psn
            psns = self.sent.add(message, offset=0, count=count, packet_bytes=size)
            assert (psns.first, psns.count) == (first, count)
            self.owner |= dict.fromkeys(range(first, first + count), (message, size))
        message.packetized = cut

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
        requests = [message.message for message in done]
        assert len(set(requests)) == len(requests)
        assert not self.reported & set(requests), "a message completed twice"
        self.reported |= set(requests)
        touched = {self.owner[psn][0].message for psn in new}
        assert set(requests) == {r for r in touched if self.messages[r].packetized and not self.open(r)}

    def open(self, request: int) -> set[int]:
        return {psn for psn, (message, _) in self.owner.items() if message.message == request} - self.acknowledged

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
            assert message.unacknowledged == len(self.open(message.message))


TestSentPackets = SentMachine.TestCase
TestSentPackets.settings = settings(max_examples=40, stateful_step_count=25)


def test_acknowledge__bitmap_beyond_what_was_sent() -> None:
    sent = Inflight()
    sent.add(wqe(), offset=0, count=4, packet_bytes=100)
    with pytest.raises(PacketError, match="an ack of PSN 4, when 4 is next"):
        sent.acknowledge(0, bitmap=0b10000)
    assert sent.missing(0, count=4) == 0b1111


def test_acknowledge__drops_whole_ranges_only() -> None:
    sent = Inflight()
    message = wqe()
    for _ in range(3):
        sent.add(message, offset=0, count=4, packet_bytes=100)
    sent.acknowledge(6, bitmap=0)
    assert sent.base == 4
    sent.acknowledge(12, bitmap=0)
    assert (sent.base, sent.acknowledged) == (12, 0)


def test_wqe__completes_when_packetized_and_acknowledged() -> None:
    sent, message = Inflight(), wqe()
    sent.add(message, offset=0, count=1, packet_bytes=100)
    assert sent.acknowledge(1, bitmap=0) == (1, 100, [])  # it is not packetized to its end
    sent.add(message, offset=44, count=2, packet_bytes=100)
    message.packetized = True
    assert sent.acknowledge(1, bitmap=0b10) == (1, 100, [])
    assert sent.acknowledge(3, bitmap=0)[2] == [message]


def test_inflight_burst__bytes_and_last_sequence() -> None:
    psns = Inflight().add(wqe(), offset=0, count=7, packet_bytes=1000)
    transmission = InflightBurst(psns, first=2, count=3, path_sequence=50, sent_at=10.0)
    assert (transmission.last_sequence, transmission.bytes) == (52, 3000)


@pytest.mark.parametrize(
    ("length", "offset", "count", "full"),
    [
        (5 * 944, 0, 5, 5),
        (5 * 944 + 1, 0, 6, 5),
        (5 * 944 - 1, 0, 5, 4),
        (5 * 944 - 1, 0, 4, 4),
        (5 * 944 - 1, 944, 4, 3),
    ],
)
def test_full__a_messages_end_may_be_short(length: int, offset: int, count: int, full: int) -> None:
    message = WorkQueueEntry(1, 0, 0, length, 0)
    psns = Inflight().add(message, offset=offset, count=count, packet_bytes=1000)
    assert psns.full(0, count=count) == full
    assert psns.full(count - 1, count=1) == (full == count)
    assert psns.full(1, count=1) == 1
    message.aborted = True
    assert psns.full(0, count=count) == 0


def test_full__a_batch_has_no_short_end_and_what_carries_nothing_no_size() -> None:
    batch, empty = WorkQueueEntry(1, 0, 0, 100, 0), WorkQueueEntry(2, 1, 0, 0, 0)
    batch.batch = SendBatch(np.zeros(8, np.uint64))
    assert Inflight().add(batch, offset=0, count=8, packet_bytes=156).full(0, count=8) == 8
    assert Inflight().add(empty, offset=0, count=1, packet_bytes=56).full(0, count=1) == 0


def test_abort_reason__of_a_message_and_of_one_of_a_batch() -> None:
    sent, message, many = Inflight(), wqe(), wqe(1)
    many.batch = SendBatch(np.zeros(8, np.uint64), packetized=2)
    one, batch = (
        sent.add(message, offset=0, count=2, packet_bytes=100),
        sent.add(many, offset=2, count=4, packet_bytes=100),
    )
    assert [psns.abort_reason(psns.first) for psns in (one, batch)] == [None, None]
    message.aborted, message.reason = True, 7
    many.batch.refuse(3, status=Status.REMOTE_ERROR_RNR)
    assert [one.abort_reason(psn) for psn in (0, 1)] == [7, 7]
    assert [batch.abort_reason(psn) for psn in range(2, 6)] == [None, 10, None, None]
    assert (one.end_psn(0), batch.end_psn(3)) == (2, 4)
    assert (one.refused(0, missing=0b11), batch.refused(2, missing=0b1011)) == (0, 0b10)
    assert (batch.refused(4, missing=0b11), batch.refused(3, missing=0b1)) == (0, 1)
    message.refused = True
    assert one.refused(0, missing=0b10) == 0b10
    many.aborted, many.reason = True, 1
    assert [batch.abort_reason(psn) for psn in range(2, 6)] == [1] * 4


def test_acknowledge__of_a_batch_with_a_refused_message() -> None:
    sent, many = Inflight(), wqe()
    many.batch = SendBatch(np.zeros(4, np.uint64), packetized=4)
    many.packetized = True
    sent.add(many, offset=0, count=4, packet_bytes=100)
    many.batch.refuse(1, status=Status.REMOTE_ERROR_RNR)
    assert sent.acknowledge(4, bitmap=0) == (4, 400, [many])
    assert many.batch.pop_completed() == [(0, 1), (2, 2)]
