"""A virtual function: a tenant's device, with an engine, keys, registrations and numbers of its own.

It accepts programs at its Unix socket, and joins the two directions of the data path to its engine's events. Nothing in
it is shared with another virtual function but the process and its loop.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from nitro_emu.abi.admin import QpState
from nitro_emu.abi.limits import MAX_KEY, MAX_RQ_DEPTH
from nitro_emu.config import VfConfig
from nitro_emu.counters import AllowanceCounters, DeviceCounters, PortCounters, SecurityCounters
from nitro_emu.device.interface import interface_mtu
from nitro_emu.device.introducer import Introducer
from nitro_emu.device.introduction import INTRODUCTION_REQUEST
from nitro_emu.device.memory_region import MemoryRegion
from nitro_emu.device.objects import AddressHandle, ProtectionDomain
from nitro_emu.device.poller import Poller
from nitro_emu.device.queue_pair import QueuePair
from nitro_emu.device.remote import Remote
from nitro_emu.device.requester import Requester
from nitro_emu.device.responder import Responder
from nitro_emu.device.sources import Sources
from nitro_emu.device.tables import Table
from nitro_emu.device.vf_trust import VfTrust
from nitro_emu.errors import AbiError, CardError
from srd.config import EndpointConfig
from srd.engine import Engine
from srd.errors import SrdError
from srd.log_limit import RateLimit
from srd.proto.config import ProtocolConfig
from srd.proto.events import (
    BatchCompletion,
    Completion,
    Event,
    MessageAborted,
    PeerEnded,
    PeerOpened,
)
from srd.proto.peer import PeerCore
from srd.proto.wire.data import HEADER_BYTES
from srd.proto.wire.protected import TAG_BYTES
from srd.proto.wire.status import Status
from srd.secure.config import Plain

MAX_DATAGRAM_BYTES: Final = 8972
"""Longest datagram without a setting: of an MTU of 9000; see `srd.config.EndpointConfig.datagram_bytes`."""
SQ_SHARE: Final = 128
"""Entries that one pass takes from a send queue, so that no queue pair waits for another's."""
SHARED_SQ_SHARE: Final = 32
"""The same while other virtual functions have programs, too."""
RQ_SHARE: Final = 256
"""Descriptors that one pass takes from a receive queue; messages that need more have them fetched."""
MESSAGE_BYTES: Final = 64 << 10
"""Longest message of the transport that carries a send: more than any MTU."""
_RTS: Final = QpState.RTS
_ERR: Final = QpState.ERR
_FETCHING: Final = (_RTS, _ERR)
_IP_UDP_BYTES = {socket.AF_INET: 28, socket.AF_INET6: 48}


@dataclass(slots=True)
class Tables:
    """The objects of all programs of a virtual function, by number."""

    queue_pairs: Table[QueuePair]
    completion_queues: Table[object]
    domains: Table[ProtectionDomain]
    handles: Table[AddressHandle]
    memory: Table[MemoryRegion]
    by_rkey: dict[int, MemoryRegion] = field(default_factory=dict)
    registered_bytes: int = 0
    """Of all that is mapped, also of what was deregistered and is still in use."""
    lingering: int = 0
    """Memory regions that were deregistered and are still in use."""

    @classmethod
    def of(cls, config: VfConfig) -> Tables:
        """Return empty tables with the limits of the settings."""
        return cls(
            Table("queue pairs", limit=config.max_qps, numbers=1 << 16),
            Table("completion queues", limit=config.max_cqs, numbers=1 << 16),
            Table("protection domains", limit=config.max_pds, numbers=1 << 16),
            Table("address handles", limit=config.max_ahs, numbers=(1 << 16) - 1),
            Table("memory regions", limit=config.max_mrs, numbers=MAX_KEY),
        )


class VirtualFunction:
    """One device. `start` it in a running event loop; `close` it."""

    def __init__(self, config: VfConfig, *, trust: VfTrust, poller: Poller, on_failure: Callable[[str], None]) -> None:
        """`on_failure` is called with the reason when the engine has failed."""
        self.config = config
        self.poller = poller
        self.tenancy = trust.tenancy
        self.tables = Tables.of(config)
        self.port = PortCounters()
        self.device = DeviceCounters()
        self._security = SecurityCounters()  # of the peers that have ended
        self.log = logging.getLogger(f"nitro_emu.vf.{config.name}")
        self._log_limit = RateLimit()  # a tenant causes as many records as it likes
        self.log.addFilter(self._log_limit)
        self._trust = trust
        self._on_failure = on_failure
        self._engine: Engine | None = None
        self._remotes: dict[bytes, Remote] = {}
        self._outgoing: dict[int, Remote] = {}  # by number of the peer that this end opened
        self._cores: dict[int, PeerCore] = {}  # of all peers, for their counters
        is_encrypted = not isinstance(trust.security, Plain)
        self.mtu_bytes = datagram_bytes(config) - HEADER_BYTES - TAG_BYTES * is_encrypted
        self.requester = Requester(
            engine=self.engine,
            counters=self.port,
            mtu=self.mtu_bytes,
            find_memory=self.tables.memory.get,
            on_room=self.run_later,
            run_soon=poller.run_soon,
        )
        self.sources = Sources(engine=self.engine, outgoing=self._outgoing, on_added=self._on_source)
        self.responder = Responder(
            engine=self.engine,
            counters=self.port,
            find_queue_pair=self.tables.queue_pairs.get,
            find_memory=self.tables.memory.get,
            find_remote_memory=self.tables.by_rkey.get,
            sources=self.sources,
            on_introduction=self._on_introduction,
            on_broken=self.break_queue_pair,
        )
        self.introducer = Introducer(
            engine=self.engine, trust=trust, sources=self.sources, outgoing=self._outgoing, log=self.log
        )
        self._sq_share = SQ_SHARE
        self._breaking: deque[QueuePair] = deque()  # whose error state is being entered
        self._runs: dict[QueuePair, Callable[[], None]] = {}
        self._on_broken: dict[QueuePair, Callable[[], None]] = {}

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the engine. Raises CardError when the address cannot be had."""
        config = self.config
        family = socket.AF_INET6 if ":" in config.address else socket.AF_INET
        address = (config.address, config.port, 0, 0) if ":" in config.address else (config.address, config.port)
        protocol = ProtocolConfig(
            paths=config.paths,
            receive_window_bytes=config.receive_window_bytes,
            max_message_bytes=min(MESSAGE_BYTES, config.receive_window_bytes),
        )
        endpoint = EndpointConfig(
            protocol=protocol,
            receive_region_bytes=config.memory_bytes,
            chunk_bytes=config.chunk_bytes,
            datagram_bytes=datagram_bytes(config),
            security=self._trust.security,
            allowance=config.allowance,
        )
        try:
            self._engine = Engine(
                endpoint, address, family=family, accepting=True, memory=self.responder, inbox=self.responder,
                on_event=self._on_event, on_failure=self._on_failure,
            )  # fmt: skip
        except SrdError as error:
            raise CardError(f"{config.name}: {error}") from error

    def engine(self) -> Engine:
        """Return the engine. Raises CardError before `start`."""
        if self._engine is None:
            raise CardError(f"{self.config.name} has not started")
        return self._engine

    @property
    def gid(self) -> bytes:
        """What its programs are addressed by."""
        return self.tenancy.gid

    def poll(self) -> bool:
        """Do at once what is due at the engine; return whether that was anything."""
        return self.engine().poll()

    @property
    def turns(self) -> int:
        """Turns of its engine so far."""
        return self.engine().turns

    @property
    def yields(self) -> bool:
        """Whether a program has got a message that it may reply to at once."""
        return self.engine().yields

    def share_loop(self, *, is_shared: bool) -> None:
        """Take small shares of a pass, or not: other virtual functions wait for them."""
        self._sq_share = SHARED_SQ_SHARE if is_shared else SQ_SHARE
        self.engine().share_loop(is_shared=is_shared)

    @property
    def security_mode(self) -> str:
        """How its peers are encrypted and known."""
        return type(self._trust.security).__name__.lower()

    @property
    def bytes_copied(self) -> int:
        """Payload bytes that were copied after they landed: to posted buffers, or to registered memory."""
        return self.responder.bytes_copied + self.engine().queues.bytes_copied

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self.requester.idle.is_set()

    def close(self) -> None:
        """Close the engine, and release the memory."""
        with ExitStack() as stack:
            stack.callback(self.log.removeFilter, self._log_limit)
            stack.callback(self.introducer.close)
            if self._engine is not None:
                stack.callback(self._engine.close)

    # -- queue pairs ------------------------------------------------------------------------------------------------

    def add_queue_pair(self, qp: QueuePair, *, on_broken: Callable[[], None]) -> None:
        """Make a queue pair known to the network; `on_broken` is called when its program has broken a rule."""
        self.tables.queue_pairs.add(qp.number, qp)
        self._on_broken[qp] = on_broken

        def run() -> None:
            self._run(qp)

        self._runs[qp] = run

    def run_later(self, qp: QueuePair) -> None:
        """Look at a send queue in the next pass."""
        if (run := self._runs.get(qp)) is not None:
            self.poller.run_soon(run)

    def _run(self, qp: QueuePair) -> None:
        if not qp.is_destroyed:
            self.on_send_doorbell(qp)

    def on_send_doorbell(self, qp: QueuePair) -> None:
        """Carry out what a program has posted, one share at a time."""
        if qp.sq is None or qp.state not in _FETCHING:
            return
        phase = qp.sq.phase
        qp.is_blocked = False
        try:
            raw = qp.sq.fetch(self._sq_share)
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

    def on_recv_doorbell(self, qp: QueuePair) -> None:
        """Take the receive requests that a program has posted."""
        if qp.rq is None:
            return
        try:
            qp.rq.fetch(most=MAX_RQ_DEPTH if qp.state is _ERR else RQ_SHARE)
        except AbiError as error:
            self.break_queue_pair(qp, str(error))
            return
        if qp.state is _ERR:
            self.responder.flush(qp)

    def break_queue_pair(self, qp: QueuePair, reason: str) -> None:
        """Put a queue pair whose program broke the rules of a ring into the error state."""
        if qp.state is _ERR:
            return
        self.log.warning("queue pair %d: %s; it is in the error state", qp.number, reason)
        qp.state = _ERR
        self._breaking.append(qp)
        if len(self._breaking) > 1:
            return  # flushing one may overrun a completion queue, and break others: the first call does these, too
        while self._breaking:
            each = self._breaking[0]
            try:
                self.flush(each)
                self._on_broken[each]()
            finally:
                self._breaking.popleft()

    def flush(self, qp: QueuePair) -> None:
        """End all requests of a queue pair with FLUSHED."""
        self.requester.cancel(lambda request: request.qp is qp)
        if qp.rq is not None:
            with suppress(AbiError):
                qp.rq.fetch()
        self.responder.flush(qp)
        self.run_later(qp)

    def reset(self, qp: QueuePair) -> None:
        """Drop all requests of a queue pair without a completion.

        Peers of whose messages it has only a part are ended: what is left of these must not be taken for new ones.
        """
        self.engine().abandon([peer for peer, reserved in (*qp.sends.items(), *qp.writes.items()) if reserved])
        qp.reset()
        self.requester.cancel(lambda request: request.qp is qp)

    def remove_queue_pair(self, qp: QueuePair) -> None:
        """Destroy a queue pair: its requests end without a completion; others hear REMOTE_ERROR_BAD_DEST_QPN."""
        del self._runs[qp], self._on_broken[qp]
        self.tables.queue_pairs.remove(qp.number)
        qp.epoch += 1
        qp.close()
        self.requester.cancel(lambda request: request.qp is qp)

    # -- address handles --------------------------------------------------------------------------------------------

    def remote(self, gid: bytes) -> Remote:
        """Return the destination of a GID, which gets one more user."""
        remote = self._remotes.get(gid)
        if remote is None:
            remote = self._remotes[gid] = Remote(
                gid,
                engine=self.engine,
                tenancy=self.tenancy,
                check_egress=self._trust.check_egress,
                on_opening=self._outgoing.__setitem__,
                on_denied=self.introducer.on_denied,
            )
        remote.users += 1
        return remote

    def drop_handle(self, handle: AddressHandle) -> None:
        """Remove an address handle; its requests end with FLUSHED."""
        self.tables.handles.remove(handle.number)
        del handle.pd.handles[handle.number]
        if handle.pd.by_gid.get(handle.gid) is handle:
            del handle.pd.by_gid[handle.gid]
            others = (other for other in handle.pd.handles.values() if other.gid == handle.gid)
            if (other := next(others, None)) is not None:
                handle.pd.by_gid[handle.gid] = other
        handle.pd.users -= 1
        self.requester.cancel(lambda request: request.handle is handle)
        handle.remote.users -= 1
        if not handle.remote.users:
            del self._remotes[handle.gid]
            handle.remote.close()

    # -- memory -------------------------------------------------------------------------------------------------------

    def drop_memory(self, memory: MemoryRegion) -> None:
        """Deregister memory: requests of others that use it end in error."""
        tables = self.tables
        tables.memory.remove(memory.lkey)
        del tables.by_rkey[memory.rkey]
        tables.lingering += 1
        lkey, rkey = memory.lkey, memory.rkey
        # A read's own key is its lkey; an answer's is the requester's: see `responder`.
        self.engine().on_deregistered(lambda key: key == lkey or key >> 32 == rkey)
        memory.deregister()

    def on_unmapped(self, memory: MemoryRegion) -> None:
        """Note that nothing uses memory any more that was deregistered."""
        self.tables.lingering -= 1
        self.tables.registered_bytes -= memory.length

    # -- events -----------------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        match event:
            case Completion(request=request) if request == INTRODUCTION_REQUEST:
                if event.status is not Status.OK:
                    self.introducer.on_refused_hello(event.peer, event.status)
            case Completion():
                self.requester.on_completed(event.request, count=1, status=event.status)
            case BatchCompletion():
                self.requester.on_completed(event.request, count=event.count, status=Status.OK)
            case PeerOpened():
                self._on_opened(event)
            case PeerEnded():
                self._on_ended(event)
            case MessageAborted():
                self.responder.on_aborted(event)
            case _:
                self.responder.on_arrival(event)

    def _on_opened(self, event: PeerOpened) -> None:
        self._cores[event.peer] = self.engine().peer(event.peer)
        self.responder.choose_prediction()
        if event.incoming:
            self.sources.add(event.peer)
            self.engine().accepted(event.peer)
            return
        remote = self._outgoing.get(event.peer)
        if remote is None:
            return
        remote.on_opened()
        self.introducer.say_hello(event.peer, remote)

    def _on_source(self) -> None:
        self.responder.choose_prediction()

    def _on_introduction(self, peer: int, message: bytes) -> None:
        self.introducer.on_introduction(peer, message)

    def _on_ended(self, event: PeerEnded) -> None:
        self._count_ended(event)
        self.introducer.on_ended(event.peer)
        remote = self._outgoing.pop(event.peer, None)
        if remote is None:
            self.responder.on_ended(event.peer)
            return
        if event.status is not Status.OK:
            self.log.warning("%s: %s (%s)", remote.name, event.reason, event.status.name)
        remote.on_ended(event.status)

    def on_new_mapping(self) -> None:
        """End the peers that a new mapping does not allow any more."""
        self.introducer.end_what_is_not_allowed(list(self._remotes.values()))

    # -- counters -----------------------------------------------------------------------------------------------------

    def _count_ended(self, event: PeerEnded) -> None:
        if event.status in (Status.LOCAL_ERROR_UNRESP_REMOTE, Status.LOCAL_ERROR_UNREACH_REMOTE):
            self.port.unresponsive_remote_events += 1
        core = self._cores.pop(event.peer, None)
        if core is not None:  # it was open
            _add(self.port, core, is_incoming=event.peer not in self._outgoing)
            add_security(self._security, core)

    def counters(self) -> PortCounters:
        """Return the port's counters as of now."""
        total = PortCounters(**self.port.as_dict())
        for number, core in self._cores.items():
            _add(total, core, is_incoming=number not in self._outgoing)
        total.rx_drops += self.engine().dropped_packets
        return total

    def security_counters(self) -> SecurityCounters:
        """Return the packets of open peers that were forged or replayed."""
        total = replace(self._security)
        for core in self._cores.values():
            add_security(total, core)
        return total

    def allowance_counters(self) -> AllowanceCounters:
        """Return what has waited because the tenant's allowance was used up."""
        exceeded = self.engine().allowance_exceeded
        return AllowanceCounters(
            bw_in_allowance_exceeded=exceeded.bandwidth_in,
            bw_out_allowance_exceeded=exceeded.bandwidth_out,
            pps_allowance_exceeded=exceeded.packets_per_second,
        )


def datagram_bytes(config: VfConfig) -> int:
    """Return the largest datagram of a virtual function: as it is set, or of its interface's MTU."""
    if config.mtu is not None:
        return config.mtu
    mtu = interface_mtu(config.address)
    if mtu is None:
        return MAX_DATAGRAM_BYTES
    family = socket.AF_INET6 if ":" in config.address else socket.AF_INET
    return min(mtu - _IP_UDP_BYTES[family], MAX_DATAGRAM_BYTES)


def add_security(total: SecurityCounters, core: PeerCore) -> None:
    """Add a peer's packets that were not authentic."""
    if core.protection is not None:
        total.forged_pkts += core.protection.forged
        total.replayed_pkts += core.protection.replayed


def _add(total: PortCounters, core: PeerCore, *, is_incoming: bool) -> None:
    """Add a peer's counters."""
    total.rx_pkts += core.receiver.packets
    total.rx_bytes += core.receiver.landed_bytes
    if is_incoming:
        total.rdma_write_recv_bytes += core.receiver.written_bytes
    if core.sender is None:
        return
    for path in core.sender.paths:
        counters = path.counters
        total.tx_pkts += counters.packets
        total.tx_bytes += counters.bytes - counters.packets * HEADER_BYTES
        total.retrans_pkts += counters.retransmitted
        total.retrans_bytes += counters.retransmitted_bytes - counters.retransmitted * HEADER_BYTES
        total.retrans_timeout_events += counters.timeouts
        total.impaired_remote_conn_events += counters.quarantines
