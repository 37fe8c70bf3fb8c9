"""A virtual function of kind EFA: a tenant's RDMA device, with an endpoint, registrations and numbers of its own.

Programs post requests to its queue pairs; it joins the two directions of the data path (`requester`, `responder`) to
its engine's events. Nothing in it is shared with another virtual function but the process and its loop.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Final

from nitro_emu.counters import DeviceCounters, PortCounters
from nitro_emu.efa.abi.enums import QpState
from nitro_emu.efa.card.closer import RETRY_S, Closer
from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.efa.card.event_ring import QP_ERROR
from nitro_emu.efa.card.memory_region import CardMemoryRegion
from nitro_emu.efa.card.objects import CardAddressHandle
from nitro_emu.efa.card.poller import Poller
from nitro_emu.efa.card.queue_pair import CardQueuePair
from nitro_emu.efa.card.requester import CardRequester
from nitro_emu.efa.card.responder import CardResponder
from nitro_emu.efa.card.vf import Tables
from nitro_emu.errors import AbiError
from nitro_emu.peers.endpoint import VfEndpoint, datagram_bytes
from nitro_emu.peers.introduction import INTRODUCTION_REQUEST
from nitro_emu.peers.outgoing import OutgoingPeer
from nitro_emu.peers.vf_trust import VfTrust
from srd.engine import Engine
from srd.proto.endpoint.peer import PeerCore
from srd.proto.events import (
    BatchCompletion,
    Completion,
    Event,
    MessageAborted,
    PeerEnded,
    PeerOpened,
)
from srd.proto.wire.data import HEADER_BYTES
from srd.proto.wire.protected import TAG_BYTES
from srd.proto.wire.status import Status
from srd.secure.config import Plain

SQ_SHARE: Final = 128
"""Entries that one pass takes from a send queue, so that no queue pair waits for another's."""
SHARED_SQ_SHARE: Final = 32
"""The same while other virtual functions have programs, too."""
SHARED_PASS_SHARE: Final = 128
"""Entries and descriptors that one pass takes from all queues then: a program has hundreds of these."""
CANCEL_SHARE: Final = 256
"""Requests that one pass ends of queue pairs in the error state, and of address handles that are destroyed."""
RQ_SHARE: Final = 256
"""Descriptors that are taken from a receive queue before a message needs them, and are all that the card keeps."""
MESSAGE_BYTES: Final = 64 << 10
"""Longest message of the transport that carries a send: more than any MTU."""
_RTS: Final = QpState.RTS
_ERR: Final = QpState.ERR
_FETCHING: Final = (_RTS, _ERR)


class EfaFunction:
    """One device. `start` it in a running event loop; `close` it."""

    def __init__(self, config: EfaConfig, *, trust: VfTrust, poller: Poller, on_failure: Callable[[str], None]) -> None:
        """`on_failure` is called with the reason when it has failed by an internal error."""
        self.config = config
        self.poller = poller
        self.tenancy = trust.tenancy
        self.tables = Tables.of(config)
        self.port = PortCounters()
        self.device = DeviceCounters()
        self.endpoint = VfEndpoint(config, trust=trust, on_failure=on_failure)
        self.log = self.endpoint.log
        self.closer = Closer()
        self._security = trust.security
        self._remotes: dict[bytes, OutgoingPeer] = {}  # by GID
        self.mtu_bytes = datagram_bytes(config) - HEADER_BYTES - TAG_BYTES * (not isinstance(self._security, Plain))
        self.requester = CardRequester(self)
        self.responder = CardResponder(self)
        self._on_failure = on_failure
        self._has_failed = False
        self._sq_share = SQ_SHARE
        self._pass_share = sys.maxsize
        self._left = sys.maxsize  # of the share of this pass
        self._admin_at = 0.0  # when the next admin command may be carried out, by time.monotonic()
        self._cancelling: deque[tuple[Iterator[int], Callable[[], None]]] = deque()  # requests, and what is done then
        self._waiting: dict[CardQueuePair, None] = {}  # whose queues are looked at in the next pass, in this order

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the engine. Raises CardError when the address cannot be had."""
        longest = min(MESSAGE_BYTES, self.config.receive_window_bytes)
        responder = self.responder
        self.endpoint.open(max_message_bytes=longest, memory=responder, destinations=responder, on_event=self._on_event)

    def engine(self) -> Engine:
        """Return the engine. Raises CardError before `start`."""
        return self.endpoint.engine()

    @property
    def gid(self) -> bytes:
        """What its programs are addressed by."""
        return self.tenancy.gid

    def poll(self) -> bool:
        """Do at once what is due at the engine; return whether that was anything."""
        self._left = self._pass_share
        return self.engine().driver.poll()

    @property
    def turns(self) -> int:
        """Turns of its engine so far."""
        return self.engine().driver.turns

    @property
    def yields(self) -> bool:
        """Whether a program has got a message that it may reply to at once."""
        return self.engine().driver.yields

    def share_loop(self, *, is_shared: bool) -> None:
        """Take small shares of a pass, or not: other virtual functions wait for them."""
        self._sq_share = SHARED_SQ_SHARE if is_shared else SQ_SHARE
        self._left = self._pass_share = SHARED_PASS_SHARE if is_shared else sys.maxsize
        self.engine().driver.share_loop(is_shared=is_shared)

    def admin_wait_s(self) -> float:
        """Return how long an admin command has to wait."""
        return RETRY_S if self.closer.is_behind else self._admin_at - time.monotonic()

    def note_admin(self, took_s: float) -> None:
        """Note what an admin command has taken of the loop: others have as much before the next one."""
        if self._sq_share == SHARED_SQ_SHARE:
            self._admin_at = time.monotonic() + took_s

    @property
    def security_mode(self) -> str:
        """How its peers are encrypted and known."""
        return type(self._security).__name__.lower()

    @property
    def bytes_copied(self) -> int:
        """Payload bytes that were copied after they landed: to posted buffers, or to registered memory."""
        return self.responder.bytes_copied + self.engine().queues.bytes_copied

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self.requester.idle.is_set()

    def fail(self, error: Exception) -> None:
        """End this virtual function by an internal error, which is logged with its traceback, once."""
        if not self._has_failed:
            self._has_failed = True
            self.log.error("internal error", exc_info=error)
            self._on_failure(f"internal error: {error!r}")

    def run_soon(self, work: Callable[[], None]) -> None:
        """Call `work` in the next pass."""
        self.poller.run_soon(work, vf=self)

    def close(self) -> None:
        """Close the engine, and release the memory."""
        self.poller.forget(self)
        try:
            self.endpoint.close()
        finally:
            self.closer.close()

    # -- queue pairs ------------------------------------------------------------------------------------------------

    def run_later(self, qp: CardQueuePair) -> None:
        """Look at the queues in the next pass."""
        self._waiting[qp] = None
        self.run_soon(self._run_waiting)

    def _run_waiting(self) -> None:
        """Look at queues until the share of a pass is used up; those that are left come first in the next one."""
        self._left = self._pass_share
        for _ in range(len(self._waiting)):
            if self._left <= 0:
                break
            qp = next(iter(self._waiting))
            del self._waiting[qp]
            if not qp.is_destroyed:
                self.on_send_doorbell(qp)
                if qp.state is _ERR:
                    self.on_recv_doorbell(qp)
        if self._waiting:
            self.run_soon(self._run_waiting)

    def on_send_doorbell(self, qp: CardQueuePair) -> None:
        """Carry out what a program has posted, one share at a time."""
        if qp.sq is None or qp.state not in _FETCHING:
            return
        if self._left <= 0:
            self.run_later(qp)
            return
        phase = qp.sq.phase
        qp.is_blocked = False
        try:
            raw = qp.sq.fetch(min(self._sq_share, self._left))
            self._left -= len(raw) // qp.sq.wqe_bytes
            if raw and qp.state is _RTS:
                self.requester.process(qp, raw, phase=phase)
            elif raw:
                self.requester.flush(qp, raw)
            if not qp.is_destroyed and qp.sq.waiting:
                qp.is_blocked = not raw
                if raw:
                    self.run_later(qp)
        except AbiError as error:
            self.break_queue_pair(qp, str(error))

    def on_recv_doorbell(self, qp: CardQueuePair) -> None:
        """Take receive requests that a program has posted; in the error state, end them."""
        if qp.rq is None:
            return
        if qp.state is _ERR and self._left > 0:
            self._left -= qp.rq.available
            self.responder.flush(qp)
        try:
            taken = qp.rq.fetch(most=max(min(RQ_SHARE - qp.rq.available, self._left), 0))
        except AbiError as error:
            self.break_queue_pair(qp, str(error))
            return
        self._left -= taken
        if qp.state is _ERR and (taken or self._left <= 0):
            self.run_later(qp)

    def break_queue_pair(self, qp: CardQueuePair, reason: str) -> None:
        """Put a queue pair whose program broke the rules of a ring into the error state."""
        if qp.state is _ERR:
            return
        self.log.warning("queue pair %d: %s; it is in the error state", qp.number, reason)
        qp.state = _ERR
        self.flush(qp)
        qp.owner.warn(syndrome=QP_ERROR, number=qp.number)

    def flush(self, qp: CardQueuePair) -> None:
        """End all requests of a queue pair with FLUSHED, a share in each pass: a program may break hundreds at once."""
        self._cancel(qp.open_requests)
        self.run_later(qp)

    def _cancel(self, numbers: Iterable[int], *, then: Callable[[], None] = lambda: None) -> None:
        """End requests with FLUSHED, a share in each pass, after those that were to be ended before; call `then`."""
        self._cancelling.append((iter(list(numbers)), then))
        if len(self._cancelling) == 1:
            self._cancel_share()

    def _cancel_share(self) -> None:
        numbers, then = self._cancelling[0]
        share = list(islice(numbers, CANCEL_SHARE))
        try:
            self.requester.cancel(share)
        finally:
            if len(share) < CANCEL_SHARE:
                self._cancelling.popleft()
                then()
            if self._cancelling:
                self.run_soon(self._cancel_share)

    def reset(self, qp: CardQueuePair) -> None:
        """Drop all requests of a queue pair without a completion.

        Peers of whose messages it has only a part are ended: what is left of these must not be taken for new ones.
        """
        self.engine().abandon([peer for peer, reserved in (*qp.sends.items(), *qp.writes.items()) if reserved])
        qp.reset()
        self.requester.cancel(qp.open_requests)

    def remove_queue_pair(self, qp: CardQueuePair) -> None:
        """Destroy a queue pair: its requests end without a completion; others hear REMOTE_ERROR_BAD_DEST_QPN."""
        self.tables.queue_pairs.remove(qp.number)
        qp.epoch += 1
        qp.close()
        self.requester.cancel(qp.open_requests)

    # -- address handles --------------------------------------------------------------------------------------------

    def remote(self, gid: bytes) -> OutgoingPeer:
        """Return the destination of a GID, which gets one more user."""
        remote = self._remotes.get(gid)
        if remote is None:
            remote = self._remotes[gid] = self.endpoint.remote(gid)
        remote.users += 1
        return remote

    def drop_handle(self, handle: CardAddressHandle) -> None:
        """Remove an address handle; its requests end with FLUSHED, a share in each pass."""
        self.tables.handles.remove(handle.number)
        same = handle.pd.by_gid[handle.gid]
        del same[handle.number]
        if not same:
            del handle.pd.by_gid[handle.gid]
        handle.pd.users -= 1
        self._cancel(handle.open_requests, then=partial(self._leave_remote, handle))

    def _leave_remote(self, handle: CardAddressHandle) -> None:
        handle.remote.users -= 1
        if not handle.remote.users:
            del self._remotes[handle.gid]
            handle.remote.close()

    # -- memory -------------------------------------------------------------------------------------------------------

    def drop_memory(self, memory: CardMemoryRegion) -> None:
        """Deregister memory: requests of others that use it end in error."""
        tables = self.tables
        tables.memory.remove(memory.lkey)
        del tables.by_rkey[memory.rkey]
        tables.lingering += 1
        lkey, rkey = memory.lkey, memory.rkey
        # A read's own key is its lkey; an answer's is the requester's: see `responder`.
        self.engine().on_deregistered(lambda key: key == lkey or key >> 32 == rkey)
        memory.deregister()

    def on_unused(self, memory: CardMemoryRegion) -> None:
        """Unmap memory that was deregistered, and that nothing uses any more."""
        self.closer.run(memory.unmap)
        self.tables.lingering -= 1
        self.tables.registered_bytes -= memory.length

    # -- events -----------------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        match event:
            case Completion(request=request) if request == INTRODUCTION_REQUEST:
                self.endpoint.on_hello_completed(event)
            case Completion():
                self.requester.on_completed(event.request, count=1, status=event.status)
            case BatchCompletion():
                self.requester.on_completed(event.request, count=event.count, status=Status.OK)
            case PeerOpened():
                self.endpoint.on_opened(event)
            case PeerEnded():
                self._on_ended(event)
            case MessageAborted():
                self.responder.on_aborted(event)
            case _:
                self.responder.on_arrival(event)

    def _on_ended(self, event: PeerEnded) -> None:
        self._count_ended(event)
        if (source := self.endpoint.on_ended(event)) is not None:
            self.responder.on_ended(event.peer, source)

    # -- counters -----------------------------------------------------------------------------------------------------

    def _count_ended(self, event: PeerEnded) -> None:
        if event.status in (Status.LOCAL_ERROR_UNRESP_REMOTE, Status.LOCAL_ERROR_UNREACH_REMOTE):
            self.port.unresponsive_remote_events += 1
        core = self.endpoint.cores.get(event.peer)
        if core is not None:  # it was open
            _add(self.port, core, is_incoming=event.peer not in self.endpoint.outgoing)

    def counters(self) -> PortCounters:
        """Return the port's counters as of now."""
        total = PortCounters(**asdict(self.port))
        for number, core in self.endpoint.cores.items():
            _add(total, core, is_incoming=number not in self.endpoint.outgoing)
        total.rx_drops += self.engine().dropped_packets
        return total


def _add(total: PortCounters, core: PeerCore, *, is_incoming: bool) -> None:
    """Add a peer's counters."""
    total.rx_pkts += core.receiver.packets
    total.rx_bytes += core.receiver.landed_bytes
    if is_incoming:
        total.rdma_write_recv_bytes += core.receiver.written_bytes
    for path in core.sender.paths:
        counters = path.counters
        total.tx_pkts += counters.packets
        total.tx_bytes += counters.bytes - counters.packets * HEADER_BYTES
        total.retrans_pkts += counters.retransmitted
        total.retrans_bytes += counters.retransmitted_bytes - counters.retransmitted * HEADER_BYTES
        total.retrans_timeout_events += counters.timeouts
        total.impaired_remote_conn_events += counters.quarantines
