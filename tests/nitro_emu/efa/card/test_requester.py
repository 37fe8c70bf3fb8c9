"""Which requests end when something is destroyed: no card, no engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from nitro_emu.efa.card.requester import INDEX_BITS, CardRequest, CardRequester
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest

pytestmark = pytest.mark.sources  # stands in for parts of the code


class Unscanned(dict[int, Any]):
    """All open requests of a virtual function: there may be a million, and looking through them takes 0.1 s."""

    def items(self) -> NoReturn:
        raise AssertionError("all open requests are looked through")

    __iter__ = values = items


class Rig:
    def __init__(self) -> None:
        self.cancelled: list[int] = []
        engine: Any = SimpleNamespace(
            post=lambda _peer, _wr: None, cancel=lambda _peer, *, request: self.cancelled.append(request >> INDEX_BITS)
        )
        vf: Any = SimpleNamespace(tables=None, endpoint=SimpleNamespace(engine=lambda: engine))
        self.requester = CardRequester(vf)
        self.requester._open = Unscanned()

    def post(self, qp: Any, handle: Any) -> None:
        wr = WorkRequest(0, 8, opcode=Opcode.SEND)
        self.requester._start(CardRequest(qp, handle, op=0, length=8, req_ids=[1], memory=(), owner=None, wr=wr))


def queue_pair() -> Any:
    return SimpleNamespace(open_requests={}, epoch=0, is_destroyed=True)


def handle() -> Any:
    return SimpleNamespace(open_requests={}, remote=SimpleNamespace(open_peer=1, packet_bytes=1000))


def test_what_is_destroyed_ends_its_own_requests_and_looks_at_no_others() -> None:
    rig = Rig()
    qps, handles = [queue_pair() for _ in range(3)], [handle() for _ in range(2)]
    for qp in qps:  # requests 1, 2; 3, 4; 5, 6
        for each in handles:
            rig.post(qp, each)
    rig.requester.cancel(handle().open_requests)
    assert rig.cancelled == []
    rig.requester.cancel(handles[1].open_requests)
    assert rig.cancelled == [2, 4, 6]
    rig.cancelled.clear()
    rig.requester.cancel(qps[1].open_requests)
    assert rig.cancelled == [3], "4 was to the handle, and is cancelled already"
    for number in range(1, 7):
        rig.requester.on_completed(number << INDEX_BITS, count=1, status=Status.FLUSHED)
    assert not any(each.open_requests for each in (*qps, *handles))
    assert rig.requester.idle.is_set()


def test_a_request_that_waits_for_its_peer_ends_at_once_and_is_forgotten() -> None:
    """Or a program that posts, and resets its queue pair, again and again, would have the card keep them all."""
    rig, qp, kept = Rig(), queue_pair(), dict[int, object]()
    remote = SimpleNamespace(
        open_peer=None,
        post=lambda post, *, fail, number: kept.setdefault(number, (post, fail)),
        withdraw=lambda number: kept.pop(number, None) is not None,
    )
    waits: Any = SimpleNamespace(open_requests={}, remote=remote)
    for _ in range(3):
        rig.post(qp, waits)
    assert list(kept) == [1, 2, 3]
    rig.requester.cancel(qp.open_requests)
    assert not kept
    assert not qp.open_requests
    assert not waits.open_requests
    assert rig.requester.idle.is_set()
