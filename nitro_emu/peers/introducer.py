"""Lets peers in, and has this end let in: the introductions of one virtual function, and what a new mapping ends.

    initiator   opened -> (document of the chip) -> HELLO ------> check source, mapping, document     responder
                check document, post requests <---------- WELCOME <- (document of the chip)

What is wrong with a HELLO or a WELCOME closes the peer. A forged one raises an alarm, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from nitro_emu.errors import AbiError, NitroError, TrustError, VpcError
from nitro_emu.peers.introduction import Hello, binding, hello_untrusted, pack_welcome, welcome_untrusted
from nitro_emu.peers.remote import Remote, RemoteState
from nitro_emu.peers.sources import Sources
from nitro_emu.peers.tenancy import ForgeryError, OtherMappingError
from nitro_emu.peers.vf_trust import VfTrust
from srd.engine import Engine
from srd.errors import SrdError, UsageError
from srd.proto.wire.status import Status

WELCOME_S: Final = 20.0
"""How long this end waits to be let in: twice as long as a security chip may take for a document."""


class Introducer:
    """The introductions of a virtual function."""

    def __init__(
        self,
        *,
        engine: Callable[[], Engine],
        trust: VfTrust,
        sources: Sources,
        outgoing: Mapping[int, Remote],
        log: logging.Logger,
    ) -> None:
        """`sources`: the peers that others have opened, `outgoing`: those that this end has."""
        self._engine = engine
        self._tenancy = trust.tenancy
        self._attestation = trust.attestation
        self._alarms = trust.alarms
        self._sources = sources
        self._outgoing = outgoing
        self._public_key = trust.public_key
        self._log = log
        self._tasks: dict[int, asyncio.Task[None]] = {}  # that wait for a document, by peer

    def close(self) -> None:
        """Wait for no document any more."""
        for task in self._tasks.values():
            task.cancel()

    def on_ended(self, peer: int) -> None:
        """Wait for no document for a peer any more."""
        if (task := self._tasks.pop(peer, None)) is not None:
            task.cancel()

    # -- this end, to others ------------------------------------------------------------------------------------------

    def say_hello(self, peer: int, remote: Remote) -> None:
        """Introduce this end over a peer that it has opened."""
        self._note_key(peer, remote)
        tenancy = self._tenancy
        hello = Hello(tenancy.vpc_id, tenancy.gid, remote.gid, map_version=tenancy.map_version)
        self._with_document(peer, lambda document: remote.say_hello(replace(hello, document=document).pack()))
        asyncio.get_running_loop().call_later(WELCOME_S, self._on_no_welcome, peer, remote)

    def _on_no_welcome(self, peer: int, remote: Remote) -> None:
        """Give a peer up that has not let this end in."""
        if remote.peer == peer and remote.state is RemoteState.NAMING:
            self.on_denied(f"{remote.name}: it has not let this end in for {WELCOME_S:.0f} s")
            self._engine().close_peer(peer)
            self._engine().flush_peer(peer)

    def on_refused_hello(self, peer: int, status: Status) -> None:
        """Give a peer up that did not take the HELLO."""
        if (remote := self._outgoing.get(peer)) is not None and remote.state is RemoteState.NAMING:
            self.on_denied(f"{remote.name}: it has not taken the HELLO ({status.name})")
            self._engine().close_peer(peer)

    def _note_key(self, peer: int, remote: Remote) -> None:
        """Add a host's key to the known hosts, unless the mapping has it."""
        trust = self._engine().trust
        if trust.known_hosts is None or (remote.destination is not None and remote.destination.public_key is not None):
            return
        try:
            trust.known_hosts.add(remote.name, self._key_of(peer))
        except SrdError as error:
            self._log.warning("%s: its key cannot be noted: %s", remote.name, error)

    def _with_document(self, peer: int, use: Callable[[bytes], None]) -> None:
        """Call `use` with this card's document for a peer: at once without a chip."""
        if not self._attestation.has_chip:
            _use(b"", use)
            return
        nonce = self._nonce(peer, is_own=True)
        self._tasks[peer] = asyncio.get_running_loop().create_task(self._attest(peer, nonce, use))

    async def _attest(self, peer: int, nonce: bytes, use: Callable[[bytes], None]) -> None:
        document = await self._attestation.document(nonce=nonce, public_key=self._public_key)
        self._tasks.pop(peer, None)
        _use(document, use)

    def on_denied(self, reason: str) -> None:
        """Count a destination that the tenant may not send to."""
        self._tenancy.counters.tx_denied += 1
        self._log.warning("denied: %s", reason)

    # -- others, to this end ------------------------------------------------------------------------------------------

    def on_introduction(self, peer: int, message: bytes) -> None:
        """Process a HELLO or a WELCOME; a peer that is not let in is closed."""
        remote = self._outgoing.get(peer)
        try:
            if remote is None:
                self._on_hello(peer, hello_untrusted(message))
            elif remote.state is RemoteState.NAMING:
                self._check_document(peer, welcome_untrusted(message))
                remote.on_welcomed()
        except (AbiError, VpcError, TrustError) as error:
            if remote is None:
                self._on_refused(peer, error)
            else:
                self.on_denied(f"{remote.name}: {error}")
            self._engine().close_peer(peer)

    def _on_hello(self, peer: int, hello: Hello) -> None:
        host = self._sources.host_of(peer)
        if host is None:
            return
        self._tenancy.check_source(hello, host=host, public_key=self._key_of(peer))
        self._check_document(peer, hello.document)
        self._with_document(peer, lambda document: self._let_in(peer, hello=hello, document=document))

    def _let_in(self, peer: int, *, hello: Hello, document: bytes) -> None:
        """Let a peer in, if it still may: the mapping may have changed while the document was made."""
        host = self._sources.host_of(peer)
        if host is None:
            return
        try:
            self._tenancy.check_source(hello, host=host, public_key=self._key_of(peer))
        except VpcError as error:
            self._on_refused(peer, error)
            self._engine().close_peer(peer)
        else:
            self._sources.let_in(peer, hello=hello, welcome=pack_welcome(document))

    def _check_document(self, peer: int, document: bytes) -> None:
        nonce = self._nonce(peer, is_own=False)
        self._attestation.check_untrusted(document, nonce=nonce, public_key=self._key_of(peer))

    def _on_refused(self, peer: int, error: NitroError) -> None:
        if isinstance(error, ForgeryError | AbiError):
            self._tenancy.counters.rx_forged += 1
            self._alarms.raise_alarm("forged-source", f"{self._log.name}: {error}")
            return
        if isinstance(error, OtherMappingError):
            self._alarms.raise_alarm("other-mapping", f"{self._log.name}: {error}")
        self._tenancy.counters.rx_denied += 1
        self._log.warning("peer %d is not let in: %s", peer, error)

    def _key_of(self, peer: int) -> bytes:
        """Return the public key that a peer has proven to have; nothing without keys."""
        engine = self._engine()
        return engine.trust.identity(engine.peer(peer).credential).public_key

    def _nonce(self, peer: int, *, is_own: bool) -> bytes:
        """Return the nonce of this end's document for a peer, or of the peer's for this end."""
        core, initiates = self._engine().peer(peer), peer in self._outgoing
        here, there = (self._public_key, core.own_context), (self._key_of(peer), core.remote_context)
        initiator, responder = (here, there) if initiates else (there, here)
        return binding(initiator=initiator, responder=responder, attester_initiates=initiates is is_own)

    # -- a new mapping ------------------------------------------------------------------------------------------------

    def end_what_is_not_allowed(self) -> None:
        """End the peers that the mapping does not allow any more, in both directions."""
        ended = [peer for peer, remote in self._outgoing.items() if not self._may_reach(remote)]
        for peer, host, hello in self._sources.let_in_sources():
            try:
                self._tenancy.check_source(hello, host=host, public_key=self._key_of(peer))
            except VpcError as error:
                self._log.warning("peer %d is ended: %s", peer, error)
                ended.append(peer)
        self._tenancy.counters.revoked += len(ended)
        self._engine().abandon(ended)

    def _may_reach(self, remote: Remote) -> bool:
        try:
            if self._tenancy.destination(remote.gid) == remote.destination:
                return True
            self._log.info("%s has moved", remote.name)
        except VpcError as error:
            self._log.warning("%s is ended: %s", remote.name, error)
        return False


def _use(document: bytes, use: Callable[[bytes], None]) -> None:
    with suppress(UsageError):  # the peer has ended, or is being closed
        use(document)
