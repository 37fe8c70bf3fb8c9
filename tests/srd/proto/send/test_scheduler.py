"""Which message the next burst is packetized from."""

from __future__ import annotations

from srd.proto.send.flow_control import Credit
from srd.proto.send.scheduler import MAX_READS, SendScheduler
from srd.proto.send.work_queue import WorkQueueEntry
from srd.proto.wire.data import IMMEDIATE, Opcode


def wqe(opcode: Opcode, *, length: int = 1000) -> WorkQueueEntry:
    return WorkQueueEntry(1, 0, 0, length, 0, opcode)


def order(scheduler: SendScheduler, *, burst_bytes: int, most: int = 100) -> list[WorkQueueEntry]:
    """Packetize bursts until none may be sent; return the entry of each."""
    cut: list[WorkQueueEntry] = []
    while (head := scheduler.head()) is not None and len(cut) < most:
        if head.end_psn == 0:
            head.end_psn = 1
        scheduler.on_packetized(head, size_bytes=burst_bytes)
        cut.append(head)
    return cut


def test_head__one_kind_is_in_order_of_posting() -> None:
    scheduler = SendScheduler(Credit(10_000, granted_messages=100, retries=7))
    sends = [wqe(Opcode.SEND, length=length) for length in (2000, 0, 1000)]
    for send in sends:
        scheduler.add(send)
    assert order(scheduler, burst_bytes=1000) == [sends[0], sends[0], sends[1], sends[2]]
    assert all(send.packetized for send in sends)
    assert scheduler.head() is None


def test_head__sends_and_writes_take_turns_and_reads_go_first() -> None:
    scheduler = SendScheduler(Credit(10_000, granted_messages=100, retries=7))
    send, write, read = (wqe(opcode, length=3000) for opcode in (Opcode.SEND, Opcode.WRITE, Opcode.READ))
    for message in (send, write, read):
        scheduler.add(message)
    assert order(scheduler, burst_bytes=1000) == [read, send, write, send, write, send, write]


def test_head__sends_without_credit_block_no_other_kind() -> None:
    scheduler = SendScheduler(Credit(999, granted_messages=100, retries=7))
    send, small, response = wqe(Opcode.SEND), wqe(Opcode.SEND, length=1), wqe(Opcode.RESPONSE)
    for message in (send, small, response):
        scheduler.add(message)
    assert order(scheduler, burst_bytes=500) == [response, response]
    assert scheduler.needs_credit


def test_head__outstanding_reads_are_limited() -> None:
    scheduler = SendScheduler(Credit(0, granted_messages=100, retries=7))
    for _ in range(MAX_READS + 1):
        scheduler.add(wqe(Opcode.READ))
    assert len(order(scheduler, burst_bytes=1000, most=1000)) == MAX_READS
    scheduler.outstanding_reads -= 1
    assert len(order(scheduler, burst_bytes=1000)) == 1


def test_remove__in_the_middle_of_each_queue() -> None:
    scheduler = SendScheduler(Credit(10_000, granted_messages=100, retries=7))
    for opcode in (Opcode.SEND, Opcode.WRITE, Opcode.RESPONSE, Opcode.READ):
        messages = [wqe(opcode) for _ in range(3)]
        for message in messages:
            scheduler.add(message)
        scheduler.remove(messages[1])
        assert order(scheduler, burst_bytes=1000) == [messages[0], messages[2]]


def test_rnr_exhausted__unstarted_sends_only() -> None:
    credit = Credit(1500, granted_messages=100, retries=0)
    scheduler = SendScheduler(credit)
    first, second = wqe(Opcode.SEND), wqe(Opcode.SEND)
    scheduler.add(first)
    scheduler.add(second)
    scheduler.on_packetized(first, size_bytes=500)
    credit.on_credit_probe()
    credit.grant(1500, messages=100)
    assert scheduler.rnr_exhausted() == [], "the first has its credit"
    scheduler.on_packetized(first, size_bytes=500)
    assert scheduler.rnr_exhausted() == [second]
    late = wqe(Opcode.SEND)
    late.rnr_count = credit.rnr_count
    scheduler.add(late)
    assert scheduler.rnr_exhausted() == [second]


def test_head__a_write_with_immediate_uses_credit_of_one_message_and_no_bytes() -> None:
    credit = Credit(0, granted_messages=1, retries=7)
    scheduler = SendScheduler(credit)
    notified, waits = (WorkQueueEntry(1, 0, 0, 1000, 0, Opcode.WRITE | IMMEDIATE) for _ in range(2))
    plain, response = wqe(Opcode.WRITE), wqe(Opcode.RESPONSE)
    for message in (notified, waits, plain, response):
        scheduler.add(message)
    assert order(scheduler, burst_bytes=1000) == [notified, plain, response], "sends without credit block no response"
    assert scheduler.needs_credit
    credit.grant(0, messages=2)
    assert order(scheduler, burst_bytes=1000) == [waits]


def test_head__flows_take_turns_and_alternate_with_sends() -> None:
    scheduler = SendScheduler(Credit(10_000, granted_messages=100, retries=7))
    send = wqe(Opcode.SEND, length=5000)
    one, response = wqe(Opcode.WRITE, length=3000), wqe(Opcode.RESPONSE, length=2000)
    response.flow = 1
    for message in (send, one, response):
        scheduler.add(message)
    assert order(scheduler, burst_bytes=1000) == [send, one, send, response, send, one, send, response, send, one]


def test_partial_flows__counts_begun_messages_without_credit() -> None:
    scheduler = SendScheduler(Credit(10_000, granted_messages=100, retries=7), flows=2)
    writes = [wqe(Opcode.WRITE, length=2000) for _ in range(3)]
    for flow, write in enumerate(writes):
        write.flow = flow
        scheduler.add(write)
    scheduler.add(wqe(Opcode.SEND, length=2000))
    counts = []
    while (head := scheduler.head()) is not None:
        scheduler.on_packetized(head, size_bytes=1000)
        counts.append(scheduler.partial_flows)
    assert max(counts) == 2
    assert counts[-1] == 0
    assert all(write.packetized for write in writes)


def test_remove__of_a_begun_message_ends_its_part_of_the_limit() -> None:
    scheduler = SendScheduler(Credit(0, granted_messages=100, retries=7), flows=1)
    first, second = wqe(Opcode.WRITE, length=9000), wqe(Opcode.WRITE, length=2000)
    second.flow = 1
    for message in (first, second):
        scheduler.add(message)
    assert order(scheduler, burst_bytes=1000, most=2) == [first, first]
    scheduler.remove(first)
    assert scheduler.partial_flows == 0
    assert order(scheduler, burst_bytes=1000) == [second, second]
