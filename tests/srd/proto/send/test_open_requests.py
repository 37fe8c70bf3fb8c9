"""srd.proto.send.queue: open requests, by the caller's number, by message number and by deadline."""

from __future__ import annotations

from srd.proto.outgoing.message import OutgoingMessage
from srd.proto.send.queue import MAX_ENDED
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from tests.srd.proto.send.posted import Posted


def test_by_number__finds_messages_until_they_end() -> None:
    posted = Posted()
    queue = posted.queue
    assert queue.count == 0
    mine, answer = posted.post(Opcode.READ), posted.post(Opcode.RESPONSE)
    assert (queue.count, queue.by_request(0), queue.by_number(0)) == (1, mine, mine)
    assert queue.by_number(1) is answer
    queue.finish(mine)
    assert queue.count == 0, "responses are no requests"
    assert queue.by_request(0) is queue.by_number(0) is None
    queue.finish(mine)  # has no effect
    queue.finish(answer)
    assert queue.by_number(1) is None
    assert mine.ended
    assert answer.ended


def test_fail_overdue__in_the_order_of_posting_without_what_has_ended() -> None:
    posted = Posted()
    queue = posted.queue
    first, second = posted.post(Opcode.READ), posted.post(Opcode.READ)
    queue.start_timers(deadline_at=10.0)
    third, response = posted.post(Opcode.READ), posted.post(Opcode.RESPONSE)
    queue.start_timers(deadline_at=11.0)
    assert queue.deadline_at == 10.0
    queue.fail_overdue(now=9.9)
    assert not first.ended
    assert not second.ended
    queue.finish(first)
    queue.fail_overdue(now=10.0)
    assert second.reason == Status.LOCAL_ERROR_UNRESP_REMOTE
    assert queue.deadline_at == 11.0
    queue.finish(third)
    queue.fail_overdue(now=99.0)
    assert not response.ended, "a response has no deadline of its own"
    assert queue.deadline_at > 1e9


def test_start_timers__one_request_left_open_does_not_keep_all_that_have_ended() -> None:
    """A responder may acknowledge a READ and never answer it, for as long as requests may take."""
    posted = Posted()
    queue, first = posted.queue, posted.post(Opcode.READ)
    for number in range(1, 10_000):
        message = posted.post(Opcode.READ)
        queue.start_timers(deadline_at=float(number))
        queue.abort(message, status=Status.FLUSHED)
        assert len(queue._timed or ()) <= 2 * (queue.count + 1) + MAX_ENDED
    queue.fail_overdue(now=1e9)
    assert first.ended
    assert not queue._timed


def withdraw(posted: Posted, *keys: int) -> list[int]:
    """Withdraw registrations; return those that were asked about."""
    asked: list[int] = []

    def is_withdrawn(key: int) -> bool:
        asked.append(key)
        return key in keys

    posted.queue.on_deregistered(is_withdrawn)
    return asked


def test_on_deregistered__ends_what_uses_a_registration() -> None:
    posted = Posted()
    one, two = posted.post(Opcode.READ, key=5), posted.post(Opcode.RESPONSE, key=5)
    three = posted.post(Opcode.READ, key=6)
    withdraw(posted, 5)
    assert [message.ended for message in (one, two, three)] == [True, True, False]
    assert (one.reason, two.reason) == (Status.LOCAL_ERROR_INVALID_LKEY, Status.REMOTE_ERROR_BAD_ADDRESS)


def test_on_deregistered__asks_once_for_each_registration() -> None:
    """A virtual function may have a million requests open, and deregister what none of them uses."""
    posted = Posted()
    messages = [posted.post(Opcode.READ, key=5 + number % 2) for number in range(100)]
    assert withdraw(posted) == [5, 6]
    for message in messages[::2]:
        posted.queue.finish(message)
    assert withdraw(posted) == [6]


def test_on_deregistered__no_registration() -> None:
    """Key 0 is that of a write, which uses none of this end."""
    posted = Posted()
    posted.post(Opcode.WRITE)
    assert withdraw(posted, 0) == []


def test_by_number__of_a_batch_looks_at_few_others() -> None:
    """A receiver that is not ready refuses each message of thousands of batches."""
    posted = Posted()
    batches = [posted.post_batch(100) for _ in range(1000)]
    assert [posted.queue.by_number(number * 50) for number in range(2000)] == [batches[n // 2] for n in range(2000)]
    assert max(map(len, (posted.queue._batches or {}).values()), default=9) <= 3
    for batch in batches:
        posted.queue.finish(batch)
    assert not posted.queue._batches


def test_by_number__every_message_of_an_open_batch() -> None:
    posted = Posted()
    found: dict[int, OutgoingMessage | None] = {}
    posted.queue._next_message = 5
    first, other = posted.post_batch(3), posted.post(Opcode.SEND)
    posted.queue._next_message = 2**32 - 2
    second = posted.post_batch(2)
    for number in (4, 5, 7, 8, 9, 2**32 - 3, 2**32 - 2, 2**32 - 1, 0):
        found[number] = posted.queue.by_number(number)
    assert list(found.values()) == [None, first, first, other, None, None, second, second, None]
    posted.queue.finish(first)
    assert posted.queue.by_number(6) is None
    assert posted.queue.by_number(2**32 - 1) is second
