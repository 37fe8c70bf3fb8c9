"""The endpoint of a virtual function, of either kind: an engine with keys of its own, and peers that are introduced.

Each has one of its own, whatever its kind. Nothing in it is shared with another virtual function. The kind
takes the engine's events, and hands on what concerns peers:

    PeerOpened               -> on_opened      the other end names itself (`incoming`), or this end does (`outgoing`)
    Completion of a HELLO    -> on_hello_completed
    PeerEnded                -> on_ended
    a new mapping            -> on_new_mapping

A peer that this end has opened is used for sending only; what the other end sends comes over a peer of its own.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from nitro_emu.counters import AllowanceCounters, SecurityCounters
from nitro_emu.errors import CardError
from nitro_emu.peers.incoming import IncomingPeer, IncomingPeers
from nitro_emu.peers.interface_mtu import interface_mtu
from nitro_emu.peers.introduction import Proofs
from nitro_emu.peers.outgoing import OutgoingPeer, note_denied
from nitro_emu.peers.vf_config import VfConfig
from nitro_emu.peers.vf_trust import VfTrust
from srd.config import EndpointConfig
from srd.engine import Engine
from srd.errors import SrdError
from srd.log_limit import RateLimit
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.peer import PeerCore
from srd.proto.events import Completion, Event, PeerEnded, PeerOpened
from srd.proto.memory import Destinations, Memory
from srd.proto.wire.status import Status

MAX_DATAGRAM_BYTES: Final = 8972
"""Longest datagram without a setting: of an MTU of 9000; see `srd.config.EndpointConfig.datagram_bytes`."""
_IP_UDP_BYTES: Final = {socket.AF_INET: 28, socket.AF_INET6: 48}

_NO_SUCH_ADDRESS: Final = (
    "; no interface here has this address: set another one, or run the card where it is (the examples card-a and "
    "card-b: srd-lab up reference; srd-lab exec h1 -- nitro-card run card-a)"
)


class VfEndpoint:
    """Engine, peers and introductions of one virtual function. `open` it in a running event loop; `close` it."""

    def __init__(
        self,
        config: VfConfig,
        *,
        trust: VfTrust,
        on_failure: Callable[[str], None],
    ) -> None:
        """`on_failure` is called with the reason when the engine has failed."""
        self.config = config
        self.tenancy = trust.tenancy
        self.log = logging.getLogger(f"nitro_emu.vf.{config.name}")
        self._log_limit = RateLimit()  # a tenant causes as many records as it likes
        self.log.addFilter(self._log_limit)
        self.outgoing: dict[int, OutgoingPeer] = {}
        """By number of the peer that this end has opened."""
        self.cores: dict[int, PeerCore] = {}
        """Of all open peers, for their counters."""
        self._trust = trust
        self._on_failure = on_failure
        self._engine: Engine | None = None
        self._security = SecurityCounters()  # of the peers that have ended
        self._proofs = Proofs(engine=self.engine, attestation=trust.attestation, public_key=trust.public_key)
        self.sources = IncomingPeers(
            engine=self.engine, trust=trust, proofs=self._proofs, outgoing=self.outgoing, log=self.log
        )

    def open(
        self, *, max_message_bytes: int, memory: Memory, destinations: Destinations, on_event: Callable[[Event], None]
    ) -> None:
        """Open the engine. Raises CardError when the address cannot be had."""
        config = self.config
        family = socket.AF_INET6 if ":" in config.address else socket.AF_INET
        address = (config.address, config.port, 0, 0) if ":" in config.address else (config.address, config.port)
        protocol = ProtocolConfig(
            paths=config.paths,
            receive_window_bytes=config.receive_window_bytes,
            max_message_bytes=max_message_bytes,
            may_move=False,  # the mapping has the addresses of the other cards
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
                endpoint, address, family=family, accepting=True, memory=memory, destinations=destinations,
                on_event=on_event, on_failure=self._on_failure, answers=self._trust.answers,
            )  # fmt: skip
        except SrdError as error:
            cause = error.__cause__ or error.__context__  # compiled code sets the latter only
            absent = isinstance(cause, OSError) and cause.errno == errno.EADDRNOTAVAIL
            raise CardError(f"{config.name}: {error}{_NO_SUCH_ADDRESS if absent else ''}") from error

    def engine(self) -> Engine:
        """Return the engine. Raises CardError before `open`."""
        if self._engine is None:
            raise CardError(f"{self.config.name} has not started")
        return self._engine

    def close(self) -> None:
        """Close the engine, and wait for no introduction any more."""
        with ExitStack() as stack:
            stack.callback(self.log.removeFilter, self._log_limit)
            stack.callback(self._proofs.close)
            if self._engine is not None:
                stack.callback(self._engine.close)

    # -- peers --------------------------------------------------------------------------------------------------------

    def remote(self, gid: bytes) -> OutgoingPeer:
        """Return a new destination, whose peer is opened when the first request needs it."""
        return OutgoingPeer(
            gid,
            engine=self.engine,
            trust=self._trust,
            proofs=self._proofs,
            outgoing=self.outgoing,
            log=self.log,
        )

    def on_opened(self, event: PeerOpened) -> None:
        """Accept a peer of another card, which has to name itself; introduce this end over its own."""
        self.cores[event.peer] = self.engine().core.peer(event.peer)
        if event.incoming:
            self.sources.add(event.peer)
            self.engine().core.accepted(event.peer)
        elif (remote := self.outgoing.get(event.peer)) is not None:
            remote.on_opened()

    def on_introduction_untrusted(self, peer: int, message: bytes) -> None:
        """Process a HELLO or a WELCOME; a peer that is not let in is closed."""
        if (remote := self.outgoing.get(peer)) is None:
            self.sources.on_hello_untrusted(peer, message)
        else:
            remote.on_welcome_untrusted(message)

    def on_denied(self, reason: str) -> None:
        """Count a destination that the tenant may not send to."""
        note_denied(reason, tenancy=self.tenancy, log=self.log)

    def on_hello_completed(self, event: Completion) -> None:
        """Give a peer up that did not take the HELLO."""
        if event.status is not Status.OK and (remote := self.outgoing.get(event.peer)) is not None:
            remote.on_refused_hello(event.status)

    def on_ended(self, event: PeerEnded) -> IncomingPeer | None:
        """Forget a peer; return the source that it was, None: this end had opened it."""
        if (core := self.cores.pop(event.peer, None)) is not None:  # it was open
            _add_security(self._security, core)
        self._proofs.on_ended(event.peer)
        remote = self.outgoing.pop(event.peer, None)
        if remote is None:
            return self.sources.remove(event.peer)
        if event.status is not Status.OK:
            self.log.warning("%s: %s (%s)", remote.name, event.reason, event.status.name)
        remote.on_ended(event.status)
        return None

    def on_new_mapping(self) -> None:
        """End the peers that a new mapping does not allow any more."""
        ended = [peer for peer, remote in self.outgoing.items() if not remote.may_stay()]
        ended += [peer for peer in self.sources if not self.sources.may_stay(peer)]
        self.tenancy.counters.revoked += len(ended)
        self.engine().abandon(ended)

    # -- counters -----------------------------------------------------------------------------------------------------

    def security_counters(self) -> SecurityCounters:
        """Return the packets that were forged or replayed."""
        total = replace(self._security)
        for core in self.cores.values():
            _add_security(total, core)
        return total

    def allowance_counters(self) -> AllowanceCounters:
        """Return what has waited because the tenant's allowance was used up."""
        exceeded = self.engine().driver.allowance_exceeded
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


def _add_security(total: SecurityCounters, core: PeerCore) -> None:
    """Add a peer's packets that were not authentic."""
    if core.protection is not None:
        total.forged_pkts += core.protection.forged
        total.replayed_pkts += core.protection.replayed
