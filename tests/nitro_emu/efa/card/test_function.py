"""What one pass does of what programs ask for: a share, whatever they post, break or destroy. No card, no engine."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nitro_emu.efa.abi import io
from nitro_emu.efa.abi.enums import QpState
from nitro_emu.efa.abi.limits import MAX_CQ_DEPTH, WQE_BYTES
from nitro_emu.efa.card.completion_queue import CardCompletionQueue
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.efa.card.function import CANCEL_SHARE, RQ_SHARE, SHARED_PASS_SHARE, SHARED_SQ_SHARE, EfaFunction
from nitro_emu.efa.card.objects import CardProtectionDomain
from nitro_emu.efa.card.queue_pair import CardQueuePair
from nitro_emu.efa.card.recv_queue import CardRecvQueue
from nitro_emu.efa.card.requester import INDEX_BITS, CardRequest
from nitro_emu.efa.card.send_queue import CardSendQueue
from nitro_emu.peers.attestation import PeerAttestation
from nitro_emu.peers.tenancy import OpenTenancy
from nitro_emu.peers.vf_trust import VfTrust
from nitro_emu.trust.alarms import Alarms
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from srd.secure.config import Plain

pytestmark = pytest.mark.sources  # stands in for parts of the code
QPS = 40
SQ_DEPTH, RQ_DEPTH = 256, 512


class FakePoller:
    """Does in the next pass what it was asked to do then."""

    def __init__(self) -> None:
        self._soon: dict[Callable[[], None], object] = {}

    def run_soon(self, work: Callable[[], None], *, vf: object) -> None:
        self._soon[work] = vf

    def touch(self, _doorbells: object) -> None:
        """A program is active."""

    def run_pass(self) -> bool:
        """Make a pass; return whether there was anything to do."""
        soon, self._soon = self._soon, {}
        for work in soon:
            work()
        return bool(soon)


class Rig:
    """A virtual function that shares its card with others, and queue pairs of it that have a completion queue."""

    def __init__(self, *, cq_depth: int = MAX_CQ_DEPTH) -> None:
        self.cancelled: list[int] = []
        self.poller = FakePoller()
        poller: Any = self.poller
        trust = VfTrust(
            security=Plain(),
            tenancy=OpenTenancy("127.0.0.1", port=9),
            attestation=PeerAttestation(),
            alarms=Alarms(),
            check_egress=lambda _: None,
            answers=lambda _: True,
        )
        config = EfaConfig(name="efa_0", address="127.0.0.1", port=9)
        self.vf = EfaFunction(config, trust=trust, poller=poller, on_failure=pytest.fail)
        driver = SimpleNamespace(share_loop=lambda **_: None, poll=lambda: False)
        engine: Any = SimpleNamespace(
            driver=driver,
            post=lambda _peer, _wr: None,
            abandon=lambda _peers: None,
            cancel=lambda _peer, *, request: self.cancelled.append(request >> INDEX_BITS),
        )
        self.vf.endpoint._engine = engine
        self.vf.share_loop(is_shared=True)
        self.warned: list[int] = []
        self.cq = CardCompletionQueue(
            1, slot=0, depth=cq_depth, entry_bytes=32, doorbell=lambda: 0, events=None, on_completion=lambda: None,
            on_overrun=self._on_overrun,
        )  # fmt: skip
        self.qps = [self._queue_pair(number) for number in range(1, QPS + 1)]

    def _queue_pair(self, number: int) -> CardQueuePair:
        owner: Any = SimpleNamespace(warn=lambda **warning: self.warned.append(warning["number"]))
        region: Any = None
        bad = io.pack_wqe(req_id=1, phase=0, dest_qp_num=1, ah=9, qkey=0)  # no such address handle
        descriptor = io.pack_rx(req_id=1, address=0, length=8, lkey=1)
        doorbells = {"sq": SQ_DEPTH, "rq": RQ_DEPTH}
        sq = CardSendQueue(
            memoryview(bad * SQ_DEPTH), depth=SQ_DEPTH, wqe_bytes=WQE_BYTES, doorbell=lambda: doorbells["sq"]
        )
        rq = CardRecvQueue(memoryview(descriptor * RQ_DEPTH), depth=RQ_DEPTH, doorbell=lambda: doorbells["rq"])
        qp = CardQueuePair(number, owner, 0, CardProtectionDomain(1), self.cq, self.cq, region, sq, rq, False)  # noqa: FBT003
        qp.state = QpState.RTS
        return qp

    def _on_overrun(self, _cq: CardCompletionQueue) -> None:
        for qp in self.qps:
            self.vf.break_queue_pair(qp, "overrun")

    def open_requests(self, qp: CardQueuePair, *, count: int) -> None:
        """Have so many requests of a queue pair be on their way."""
        remote = SimpleNamespace(open_peer=1, packet_bytes=1000)
        handle: Any = SimpleNamespace(open_requests={}, remote=remote)
        for _ in range(count):
            wr = WorkRequest(0, 8, opcode=Opcode.SEND)
            self.vf.requester._start(CardRequest(qp, handle, op=0, length=8, req_ids=[1], memory=(), owner=None, wr=wr))

    @property
    def completed(self) -> int:
        return self.cq._producer


def test_a_pass_takes_a_share_of_all_send_queues_and_each_has_its_turn() -> None:
    rig = Rig()
    for qp in rig.qps:
        rig.vf.on_send_doorbell(qp)
    assert rig.completed == SHARED_PASS_SHARE
    before = rig.completed
    while rig.poller.run_pass():
        assert rig.completed - before <= SHARED_PASS_SHARE
        before = rig.completed
        waiting = [qp.sq.waiting for qp in rig.qps if qp.sq is not None]
        assert max(waiting) - min(waiting) <= 2 * SHARED_SQ_SHARE, "one waits for all of another's"
    assert rig.completed == QPS * SQ_DEPTH


def test_what_is_left_of_a_share_is_all_that_a_send_queue_gets() -> None:
    rig = Rig()
    rig.vf._left = 5
    rig.vf.on_send_doorbell(rig.qps[0])
    assert rig.completed == 5


def test_a_pass_takes_a_share_of_all_receive_queues() -> None:
    rig = Rig()
    for qp in rig.qps:
        rig.vf.on_recv_doorbell(qp)
    assert sum(qp.rq.available for qp in rig.qps if qp.rq is not None) == SHARED_PASS_SHARE


def test_no_more_receive_requests_are_kept_than_one_share() -> None:
    """The others lie in the ring, which is the program's memory."""
    rig = Rig()
    qp = rig.qps[0]
    assert qp.rq is not None
    for _ in range(10):
        rig.vf.poll()
        rig.vf.on_recv_doorbell(qp)
    assert qp.rq.available == RQ_SHARE
    assert rig.vf.responder._reserve(qp, RQ_DEPTH), "a message that needs more has them fetched"


@pytest.mark.parametrize("is_overrun", [False, True])
def test_queue_pairs_that_break_at_once_end_their_requests_in_shares(*, is_overrun: bool) -> None:
    rig = Rig(cq_depth=1 if is_overrun else MAX_CQ_DEPTH)
    for qp in rig.qps:
        rig.open_requests(qp, count=3 * CANCEL_SHARE)
        rig.vf.poll()
        rig.vf.on_recv_doorbell(qp)
    rig.vf.poll()
    if is_overrun:
        for qp in rig.qps[:2]:
            rig.vf.on_send_doorbell(qp)
    else:
        for qp in rig.qps:
            rig.vf.break_queue_pair(qp, "test")
    assert [qp.state for qp in rig.qps] == [QpState.ERR] * QPS
    assert rig.warned == list(range(1, QPS + 1))
    cancelled = completed = taken = 0
    while True:
        held = sum(qp.rq._consumed + qp.sq.consumed for qp in rig.qps if qp.rq is not None and qp.sq is not None)
        assert len(rig.cancelled) - cancelled <= CANCEL_SHARE
        assert rig.completed - completed <= SHARED_PASS_SHARE + RQ_SHARE
        assert not taken or held - taken <= SHARED_PASS_SHARE
        cancelled, completed, taken = len(rig.cancelled), rig.completed, held
        if not rig.poller.run_pass():
            break
    assert len(rig.cancelled) == QPS * 3 * CANCEL_SHARE
    assert held == QPS * (RQ_DEPTH + SQ_DEPTH), "all that was posted has ended"
    assert not any(qp.rq.available for qp in rig.qps if qp.rq is not None)
    if not is_overrun:
        assert rig.completed == QPS * (RQ_DEPTH + SQ_DEPTH)
    rig.vf.requester.on_completed(1 << INDEX_BITS, count=1, status=Status.FLUSHED)


def test_a_queue_pair_that_is_reset_while_it_ends_its_requests_begins_anew() -> None:
    rig = Rig()
    first, second = rig.qps[:2]
    for qp in (first, second):
        rig.open_requests(qp, count=CANCEL_SHARE)
        rig.vf.break_queue_pair(qp, "test")
    second.state = QpState.RESET
    rig.vf.reset(second)
    second.state = QpState.RTS
    before = len(rig.cancelled)
    rig.open_requests(second, count=5)
    while rig.poller.run_pass():
        pass
    assert len(rig.cancelled) == before, "its new requests go on"
    assert second.rq is not None
    assert not second.rq.available, "nothing was taken of it"
