"""Open requests, by name, by number and by time."""

from __future__ import annotations

from srd.proto.requests import Requests
from srd.proto.sent import Outbound
from srd.proto.wire import Opcode


def request(name: int | None, *, message: int, local_key: int = 0) -> Outbound:
    opcode = Opcode.RESPONSE if name is None else Opcode.READ
    return Outbound(name, message, 0, 10, 0, opcode, local_key=local_key)


def test_requests__found_by_name_and_by_number_until_they_end() -> None:
    requests = Requests()
    assert not requests
    mine, answer = request(7, message=0), request(None, message=1)
    requests.add(mine)
    requests.add(answer)
    assert requests
    assert (requests.names, requests.named(7), requests.numbered(0)) == ([7], mine, mine)
    assert requests.numbered(1) is answer
    requests.end(mine)
    assert not requests, "answers are nobody's request"
    assert requests.named(7) is requests.numbered(0) is None
    requests.end(mine)  # once is enough
    requests.end(answer)
    assert requests.numbered(1) is None
    assert mine.ended
    assert answer.ended


def test_overdue__in_the_order_of_posting_without_what_has_ended() -> None:
    requests = Requests()
    first, second, third = (request(name, message=name) for name in range(3))
    requests.add(first)
    requests.add(second)
    requests.date(deadline_at=10.0)
    requests.add(third)
    requests.add(request(None, message=9))
    requests.date(deadline_at=11.0)
    assert requests.deadline_at == 10.0
    assert requests.overdue(now=9.9) == []
    requests.end(first)
    assert requests.overdue(now=10.0) == [second]
    assert requests.deadline_at == 11.0
    requests.end(third)
    assert requests.overdue(now=99.0) == [], "what answers a read has no bound but the read's"
    assert requests.deadline_at is None


def test_using__those_that_need_a_registration() -> None:
    requests = Requests()
    one, two = request(1, message=1, local_key=5), request(None, message=2, local_key=5)
    for outbound in (one, two, request(3, message=3, local_key=6)):
        requests.add(outbound)
    assert requests.using(5) == [one, two]
