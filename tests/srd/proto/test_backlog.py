"""Which message the next burst is cut from."""

from __future__ import annotations

from srd.proto.backlog import MAX_READS, Backlog
from srd.proto.credit import Credit
from srd.proto.sent import Outbound
from srd.proto.wire import IMMEDIATE, Opcode


def outbound(opcode: Opcode, *, length: int = 1000) -> Outbound:
    return Outbound(1, 0, 0, length, 0, opcode)


def order(backlog: Backlog, *, burst_bytes: int, most: int = 100) -> list[Outbound]:
    """Cut bursts until nothing may be; return of what each was."""
    cut: list[Outbound] = []
    while (head := backlog.head()) is not None and len(cut) < most:
        if head.end_psn == 0:
            head.end_psn = 1
        backlog.cut(head, size_bytes=burst_bytes)
        cut.append(head)
    return cut


def test_head__one_kind_is_in_order_of_posting() -> None:
    backlog = Backlog(Credit(10_000, granted_messages=100, retries=7))
    sends = [outbound(Opcode.SEND, length=length) for length in (2000, 0, 1000)]
    for send in sends:
        backlog.add(send)
    assert order(backlog, burst_bytes=1000) == [sends[0], sends[0], sends[1], sends[2]]
    assert all(send.cut for send in sends)
    assert backlog.head() is None


def test_head__sends_and_writes_take_turns_and_reads_go_first() -> None:
    backlog = Backlog(Credit(10_000, granted_messages=100, retries=7))
    send, write, read = (outbound(opcode, length=3000) for opcode in (Opcode.SEND, Opcode.WRITE, Opcode.READ))
    for message in (send, write, read):
        backlog.add(message)
    assert order(backlog, burst_bytes=1000) == [read, send, write, send, write, send, write]


def test_head__sends_without_credit_hold_up_nothing_else() -> None:
    backlog = Backlog(Credit(999, granted_messages=100, retries=7))
    send, small, response = outbound(Opcode.SEND), outbound(Opcode.SEND, length=1), outbound(Opcode.RESPONSE)
    for message in (send, small, response):
        backlog.add(message)
    assert order(backlog, burst_bytes=500) == [response, response]
    assert backlog.starving


def test_head__no_more_reads_than_a_responder_must_remember() -> None:
    backlog = Backlog(Credit(0, granted_messages=100, retries=7))
    for _ in range(MAX_READS + 1):
        backlog.add(outbound(Opcode.READ))
    assert len(order(backlog, burst_bytes=1000, most=1000)) == MAX_READS
    backlog.reads_unanswered -= 1
    assert len(order(backlog, burst_bytes=1000)) == 1


def test_remove__in_the_middle_of_each_lane() -> None:
    backlog = Backlog(Credit(10_000, granted_messages=100, retries=7))
    for opcode in (Opcode.SEND, Opcode.WRITE, Opcode.RESPONSE, Opcode.READ):
        messages = [outbound(opcode) for _ in range(3)]
        for message in messages:
            backlog.add(message)
        backlog.remove(messages[1])
        assert order(backlog, burst_bytes=1000) == [messages[0], messages[2]]


def test_unready__those_that_wait_and_not_what_has_started() -> None:
    credit = Credit(1500, granted_messages=100, retries=0)
    backlog = Backlog(credit)
    first, second = outbound(Opcode.SEND), outbound(Opcode.SEND)
    backlog.add(first)
    backlog.add(second)
    backlog.cut(first, size_bytes=500)
    credit.ask()
    credit.grant(1500, messages=100)
    assert backlog.unready() == [], "the first has all it needs"
    backlog.cut(first, size_bytes=500)
    assert backlog.unready() == [second]
    late = outbound(Opcode.SEND)
    late.rounds = credit.rounds
    backlog.add(late)
    assert backlog.unready() == [second]


def test_head__a_write_that_is_told_of_takes_the_credit_of_a_message_and_no_bytes() -> None:
    credit = Credit(0, granted_messages=1, retries=7)
    backlog = Backlog(credit)
    told, waits = (Outbound(1, 0, 0, 1000, 0, Opcode.WRITE | IMMEDIATE) for _ in range(2))
    plain, response = outbound(Opcode.WRITE), outbound(Opcode.RESPONSE)
    for message in (told, waits, plain, response):
        backlog.add(message)
    assert order(backlog, burst_bytes=1000) == [told, plain, response], "what waits holds up no answer"
    assert backlog.starving
    credit.grant(0, messages=2)
    assert order(backlog, burst_bytes=1000) == [waits]
