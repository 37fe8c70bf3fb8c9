"""Queue pairs: the state table, and what belongs to one of them.

    RESET -> INIT -> RTR -> RTS <-> SQD;  any -> RESET, ERR

A queue pair receives in RTR, RTS and SQD, and starts requests in RTS. In ERR everything that is posted completes with
FLUSHED; in RESET and INIT posted sends wait.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from devmem.region import Region
from nitro_emu.efa.abi.commands import ModifyQp
from nitro_emu.efa.abi.enums import NEXT_STATES, AdminStatus, ModifyMask, QpState
from nitro_emu.efa.abi.limits import RNR_RETRY_FOREVER
from nitro_emu.efa.card.completion_queue import CardCompletionQueue
from nitro_emu.efa.card.objects import CardProtectionDomain, ObjectOwner
from nitro_emu.efa.card.recv_queue import CardRecvQueue, PostedReceive
from nitro_emu.efa.card.send_queue import CardSendQueue
from nitro_emu.errors import AdminError

RECEIVING: Final = frozenset((QpState.RTR, QpState.RTS, QpState.SQD))
"""States in which messages are received."""


@dataclass(slots=True, eq=False)
class Reservation:
    """Receive requests of messages that were admitted and have not arrived."""

    length: int
    """Of each message."""
    requests: list[PostedReceive]


@dataclass(slots=True, eq=False)
class CardQueuePair:
    """One queue pair. Its rings are None for a depth of 0."""

    number: int
    owner: ObjectOwner
    slot: int
    """Of its doorbells."""
    pd: CardProtectionDomain
    send_cq: CardCompletionQueue
    recv_cq: CardCompletionQueue
    region: Region
    """The rings."""
    sq: CardSendQueue | None
    rq: CardRecvQueue | None
    is_unsolicited: bool
    """Whether a write with an immediate takes no receive request."""
    epoch: int = 0
    """Counts resets: completions of requests from before a reset are dropped."""
    is_blocked: bool = False
    """Whether posted sends wait in the ring until others have completed."""
    state: QpState = QpState.RESET
    qkey: int = 0
    sq_psn: int = 0
    rnr_retry: int = 0
    """As SRD was first specified: without the attribute, a receiver that is not ready fails the request."""
    is_destroyed: bool = False
    open_requests: dict[int, None] = field(default_factory=dict)
    """The numbers of its requests that have not ended (`requester`)."""
    sends: dict[int, deque[Reservation]] = field(default_factory=dict)
    """Reservations for sends, by peer."""
    writes: dict[int, deque[PostedReceive]] = field(default_factory=dict)
    """Reservations for writes with an immediate, by peer."""

    @property
    def receives(self) -> bool:
        """Whether messages are received."""
        return self.state in RECEIVING

    def modify(self, command: ModifyQp) -> None:
        """Change state and attributes. Raises AdminError and changes nothing if the table does not allow it."""
        mask = command.modify_mask
        state = self._next_state(command)
        if mask & ModifyMask.RNR_RETRY and command.rnr_retry > RNR_RETRY_FOREVER:
            raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"rnr_retry: {command.rnr_retry} is more than 7")
        if mask & ModifyMask.QKEY:
            self.qkey = command.qkey
        if mask & ModifyMask.SQ_PSN:
            self.sq_psn = command.sq_psn & 0xFFFFFF
        if mask & ModifyMask.RNR_RETRY:
            self.rnr_retry = command.rnr_retry
        self.state = state

    def _next_state(self, command: ModifyQp) -> QpState:
        mask = command.modify_mask
        if mask & ModifyMask.CUR_QP_STATE and command.cur_qp_state != self.state:
            raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"cur_qp_state: {command.cur_qp_state}, is {self.state}")
        if not mask & ModifyMask.QP_STATE:
            return self.state
        try:
            state = QpState(command.qp_state)
        except ValueError:
            raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"qp_state: {command.qp_state} is unknown") from None
        if state not in NEXT_STATES[self.state]:
            raise AdminError(AdminStatus.ILLEGAL_PARAMETER, f"qp_state: {state.name} does not follow {self.state.name}")
        return state

    def reserve_send(self, peer: int, *, length: int, requests: list[PostedReceive]) -> None:
        """Note that sends of a peer were admitted."""
        self.sends.setdefault(peer, deque()).append(Reservation(length, requests))

    def reserve_write(self, peer: int, request: PostedReceive) -> None:
        """Note that the notification of a peer's write was admitted."""
        self.writes.setdefault(peer, deque()).append(request)

    def take_send(self, peer: int, *, length: int, count: int) -> list[PostedReceive]:
        """Return the requests reserved for `count` sends of this length, at most as many; none: there are none."""
        reservations = self.sends.get(peer, ())
        for found in reservations:
            if found.length == length:
                taken, found.requests = found.requests[:count], found.requests[count:]
                if not found.requests:
                    self.sends[peer].remove(found)
                return taken
        return []

    def take_write(self, peer: int) -> list[PostedReceive]:
        """Return the request reserved for a write with an immediate; none: there is none."""
        reserved = self.writes.get(peer)
        return [reserved.popleft()] if reserved else []

    def forget(self, peer: int) -> None:
        """Give back what was reserved for a peer that has ended."""
        if self.rq is None:
            return
        for reservation in self.sends.pop(peer, ()):
            self.rq.give_back(reservation.requests)
        self.rq.give_back(list(self.writes.pop(peer, ())))

    def reset(self) -> None:
        """Forget all requests; the rings begin anew."""
        self.epoch += 1
        self.is_blocked = False
        self.sends.clear()
        self.writes.clear()
        for queue in (self.sq, self.rq):
            if queue is not None:
                queue.reset()

    def close(self) -> None:
        """Release the rings and what it uses."""
        self.is_destroyed = True
        for queue in (self.sq, self.rq):
            if queue is not None:
                queue.close()
        self.region.close()
        self.pd.users -= 1
        self.send_cq.users -= 1
        self.recv_cq.users -= 1
