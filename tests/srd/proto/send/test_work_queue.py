"""Open requests, by request id, by message number and by deadline."""

from __future__ import annotations

import numpy as np

from srd.proto.send.batch import SendBatch
from srd.proto.send.work_queue import MAX_ENDED, WorkQueue, WorkQueueEntry
from srd.proto.wire.data import Opcode


def request(name: int | None, *, message: int, local_key: int = 0) -> WorkQueueEntry:
    opcode = Opcode.RESPONSE if name is None else Opcode.READ
    return WorkQueueEntry(name, message, 0, 10, 0, opcode, local_key=local_key)


def test_work_queue__finds_requests_by_id_and_by_message_until_they_end() -> None:
    requests = WorkQueue()
    assert not requests
    mine, answer = request(7, message=0), request(None, message=1)
    requests.add(mine)
    requests.add(answer)
    assert requests
    assert (requests.open_requests, requests.by_request(7), requests.by_message(0)) == ([7], mine, mine)
    assert requests.by_message(1) is answer
    requests.remove(mine)
    assert not requests, "responses are no requests"
    assert requests.by_request(7) is requests.by_message(0) is None
    requests.remove(mine)  # has no effect
    requests.remove(answer)
    assert requests.by_message(1) is None
    assert mine.ended
    assert answer.ended


def test_overdue__in_the_order_of_posting_without_what_has_ended() -> None:
    requests = WorkQueue()
    first, second, third = (request(name, message=name) for name in range(3))
    requests.add(first)
    requests.add(second)
    requests.start_timers(deadline_at=10.0)
    requests.add(third)
    requests.add(request(None, message=9))
    requests.start_timers(deadline_at=11.0)
    assert requests.deadline_at == 10.0
    assert requests.overdue(now=9.9) == []
    requests.remove(first)
    assert requests.overdue(now=10.0) == [second]
    assert requests.deadline_at == 11.0
    requests.remove(third)
    assert requests.overdue(now=99.0) == [], "a response has no deadline of its own"
    assert requests.deadline_at is None


def test_start_timers__one_request_left_open_does_not_keep_all_that_have_ended() -> None:
    """A responder may acknowledge a READ and never answer it, for as long as requests may take."""
    requests = WorkQueue()
    requests.add(request(0, message=0))
    for name in range(1, 10_000):
        requests.add(wqe := request(name, message=name))
        requests.start_timers(deadline_at=float(name))
        requests.remove(wqe)
        assert len(requests._timed) <= 2 * (requests.count + 1) + MAX_ENDED
    assert [wqe.request for wqe in requests.overdue(now=1e9)] == [0]


def test_using__requests_of_a_registration() -> None:
    requests = WorkQueue()
    one, two = request(1, message=1, local_key=5), request(None, message=2, local_key=5)
    for wqe in (one, two, request(3, message=3, local_key=6)):
        requests.add(wqe)
    assert requests.using_keys((5).__eq__) == [one, two]


def test_using__asks_once_for_each_registration() -> None:
    """A virtual function may have a million requests open, and deregister what none of them uses."""
    requests = WorkQueue()
    for name in range(100):
        requests.add(request(name, message=name, local_key=5 + name % 2))
    asked: list[int] = []

    def ask(key: int) -> bool:
        asked.append(key)
        return False

    assert requests.using_keys(ask) == []
    assert asked == [5, 6]
    for name in range(0, 100, 2):
        requests.remove(requests.by_message(name) or request(0, message=0))
    asked.clear()
    requests.using_keys(ask)
    assert asked == [6]


def test_using__no_registration() -> None:
    """Key 0 is that of a write, which uses none of this end."""
    requests = WorkQueue()
    requests.add(request(1, message=1))
    assert requests.using_keys(lambda _: True) == []


def test_batch_of__looks_at_few_others() -> None:
    """A receiver that is not ready refuses each message of thousands of batches."""
    requests, batches = WorkQueue(), []
    for number in range(1000):
        wqe = WorkQueueEntry(number * 100, number * 100, 0, 10, 0)
        wqe.batch = SendBatch(np.zeros(100, np.uint64))
        requests.add(wqe)
        batches.append(wqe)
    assert [requests.batch_of(number * 50) for number in range(2000)] == [batches[n // 2] for n in range(2000)]
    assert max(map(len, requests._batches.values())) <= 3
    for wqe in batches:
        requests.remove(wqe)
    assert not requests._batches


def test_batch_of__every_message_of_an_open_batch() -> None:
    requests = WorkQueue()
    first, second = (WorkQueueEntry(name, message, 0, 10, 0) for name, message in ((100, 5), (200, 2**32 - 2)))
    first.batch, second.batch = SendBatch(np.zeros(3, np.uint64)), SendBatch(np.zeros(2, np.uint64))
    for wqe in (first, second, request(7, message=8)):
        requests.add(wqe)
    found = {message: requests.batch_of(message) for message in (4, 5, 7, 8, 2**32 - 3, 2**32 - 2, 2**32 - 1, 0)}
    expected = [None, first, first, None, None, second, second, None]
    assert list(found.values()) == expected
    requests.remove(first)
    assert requests.batch_of(5) is None
    assert requests.batch_of(2**32 - 1) is second
