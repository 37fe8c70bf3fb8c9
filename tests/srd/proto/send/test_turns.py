"""srd.proto.send.queue: which message the next burst is packetized from."""

from __future__ import annotations

import pytest

from srd.proto.outgoing.flow_control import Credit
from srd.proto.send.uncredited import MAX_READS
from srd.proto.wire.data import HEADER_BYTES, Opcode
from tests.srd.proto.send.posted import Posted


def test_head__one_kind_is_in_order_of_posting() -> None:
    posted = Posted()
    sends = [posted.post(Opcode.SEND, length=length) for length in (2000, 0, 1000)]
    assert posted.order() == [sends[0], sends[0], sends[1], sends[2]]
    assert not any(send.left for send in sends)
    assert posted.queue.head() is None


def test_head__sends_and_writes_take_turns_and_reads_go_first() -> None:
    posted = Posted()
    send, write, read = (posted.post(opcode, length=3000) for opcode in (Opcode.SEND, Opcode.WRITE, Opcode.READ))
    assert posted.order() == [read, send, write, send, write, send, write]


def test_head__outstanding_reads_are_limited() -> None:
    posted = Posted(Credit(0, granted_messages=100, retries=7))
    for _ in range(MAX_READS + 1):
        posted.post(Opcode.READ)
    reads = posted.order(most=1000)
    assert len(reads) == MAX_READS
    posted.queue.finish(reads[0])
    assert len(posted.order()) == 1


def test_fail_unready__unstarted_sends_only() -> None:
    credit = Credit(2500, granted_messages=100, retries=0)
    posted = Posted(credit)
    first, second = (posted.post(Opcode.SEND, length=2000) for _ in range(2))
    posted.packetize()
    credit.on_credit_probe()
    credit.grant(2500, messages=100)
    posted.queue.fail_unready()
    assert not first.ended, "it has its credit"
    assert not second.ended
    posted.packetize()
    late = posted.post(Opcode.SEND)
    posted.queue.fail_unready()
    assert [message.ended for message in (first, second, late)] == [False, True, False]


@pytest.mark.parametrize("granted", [(35, 100), (1 << 30, 3)], ids=["bytes", "messages"])
def test_head__a_batch_as_far_as_there_is_credit(granted: tuple[int, int]) -> None:
    posted = Posted(Credit(granted[0], granted_messages=granted[1], retries=7))
    batch, write = posted.post_batch(5, length=10), posted.post(Opcode.WRITE)
    assert batch.covered(posted.credit) == 3
    assert posted.order() == [batch, write, batch, batch]
    assert posted.queue.needs_credit
    posted.credit.grant(1 << 31, messages=100)
    assert posted.order() == [batch, batch]


def test_head__flows_take_turns_and_alternate_with_sends() -> None:
    posted = Posted()
    send = posted.post(Opcode.SEND, length=5000)
    one, response = posted.post(Opcode.WRITE, length=3000), posted.post(Opcode.RESPONSE, length=2000, flow=1)
    assert posted.order() == [send, one, send, response, send, one, send, response, send, one]


def test_backlog_bytes__is_what_may_be_sent_with_headers() -> None:
    posted = Posted(Credit(3500, granted_messages=100, retries=7))
    posted.post(Opcode.SEND, length=2500)
    assert posted.queue.backlog_bytes == 2500 + 3 * HEADER_BYTES
    posted.post(Opcode.SEND, length=1000)
    posted.post(Opcode.SEND, length=1)  # for which there is no credit
    posted.post(Opcode.WRITE, length=0)
    posted.post(Opcode.READ, length=5000)
    assert posted.queue.backlog_bytes == 3500 + 6 * HEADER_BYTES
    posted.order(most=2)
    assert posted.queue.backlog_bytes == 2500 + 4 * HEADER_BYTES, "a READ, and a packet of the send"
    batch = Posted(Credit(30, granted_messages=100, retries=7))
    batch.post_batch(5, length=10)
    assert batch.queue.backlog_bytes == 5 * (10 + HEADER_BYTES)
