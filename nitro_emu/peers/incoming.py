"""The peers that other cards have opened to a virtual function: what they said when they named themselves.

Nothing but an introduction is taken from a peer before it was let in:

    HELLO -> check source, mapping, document -> (document of the chip) -> WELCOME

What is wrong with a HELLO closes the peer. A forged one raises an alarm, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from nitro_emu.errors import AbiError, NitroError, TrustError, VpcError
from nitro_emu.peers.introduction import (
    INTRODUCTION_KEY,
    INTRODUCTION_REQUEST,
    MAX_INTRODUCTION_BYTES,
    VfHello,
    hello_untrusted,
    pack_welcome,
)
from nitro_emu.peers.outgoing import RemoteState
from nitro_emu.peers.tenancy import ForgeryError, OtherMappingError
from srd.io.addresses import host_text
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest

if TYPE_CHECKING:
    from nitro_emu.peers.endpoint import VfEndpoint

NAMING_S: Final = 5.0
"""Time in which a peer has to name itself, before it is closed."""


@dataclass(slots=True, eq=False)
class IncomingPeer:
    """A peer that another card has opened."""

    host: str
    gid: bytes | None = None
    """None: it was not let in yet."""
    hello: VfHello | None = None
    """What it said when it named itself."""
    is_naming: bool = False
    """Whether its HELLO was admitted; there is one."""
    welcome: npt.NDArray[np.uint8] | None = None
    """The answer, while it is sent."""
    queue_pairs: set[int] = field(default_factory=set)
    """Numbers of those that have reserved receive requests for it."""


class IncomingPeers:
    """Incoming peers by the peer's number."""

    def __init__(self, endpoint: VfEndpoint) -> None:
        self._endpoint = endpoint
        self._engine = endpoint.engine
        self._tenancy = endpoint.tenancy
        self._proofs = endpoint.proofs
        self._log = endpoint.log
        self._sources: dict[int, IncomingPeer] = {}

    def admit_introduction(self, peer: int, *, length: int, count: int) -> Status | None:
        """Let a HELLO pass, once, and a WELCOME that this end waits for; return why not."""
        if length > MAX_INTRODUCTION_BYTES or count != 1:
            return Status.REMOTE_ERROR_BAD_LENGTH
        if (remote := self._endpoint.outgoing.get(peer)) is not None:
            return None if remote.state is RemoteState.NAMING else Status.REMOTE_ERROR_ABORT
        source = self.add(peer)
        if source.is_naming:
            return Status.REMOTE_ERROR_ABORT
        source.is_naming = True
        return None

    def add(self, peer: int) -> IncomingPeer:
        """Return the source behind a peer, which is known from its first packet on, before its event was delivered.

        It has to name itself in time.
        """
        source = self._sources.get(peer)
        if source is None:
            source = self._sources[peer] = IncomingPeer(host_text(self._engine().core.peer(peer).address))
            asyncio.get_running_loop().call_later(NAMING_S, self._expire, peer)
        return source

    def _expire(self, peer: int) -> None:
        """Close a peer that has not named itself."""
        source = self._sources.get(peer)
        if source is not None and source.gid is None:
            self._engine().close_peer(peer)

    def get(self, peer: int) -> IncomingPeer | None:
        """Return the source behind a peer; None: this end has opened it, or it has ended."""
        return self._sources.get(peer)

    def named(self, peer: int) -> IncomingPeer | None:
        """Return the source behind a peer that was let in."""
        source = self._sources.get(peer)
        return None if source is None or source.gid is None else source

    def on_hello_untrusted(self, peer: int, message: bytes) -> None:
        """Let a peer in, or close it."""
        if (source := self._sources.get(peer)) is None:
            return
        try:
            hello = hello_untrusted(message)
            self._check(peer, source, hello)
            self._proofs.check_untrusted(hello.document, peer=peer, initiates=False)
            self._proofs.with_document(partial(self._let_in, peer, hello), peer=peer, initiates=False)
        except (AbiError, VpcError, TrustError) as error:
            self._refuse(peer, error)

    def _check(self, peer: int, source: IncomingPeer, hello: VfHello) -> None:
        self._tenancy.check_source(hello, host=source.host, public_key=self._proofs.key_of(peer))

    def _let_in(self, peer: int, hello: VfHello, document: bytes) -> None:
        """Let a peer in, if it still may: the mapping may have changed while the document was made."""
        if (source := self._sources.get(peer)) is None:
            return
        try:
            self._check(peer, source, hello)
        except VpcError as error:
            self._refuse(peer, error)
            return
        source.welcome = np.frombuffer(pack_welcome(document), np.uint8)
        request = WorkRequest(
            INTRODUCTION_REQUEST, len(source.welcome), int(source.welcome.ctypes.data), key=INTRODUCTION_KEY
        )
        self._engine().post(peer, request)
        source.gid, source.hello = hello.source, hello

    def _refuse(self, peer: int, error: NitroError) -> None:
        counters = self._tenancy.counters
        if isinstance(error, ForgeryError | AbiError):
            counters.rx_forged += 1
            self._endpoint.trust.alarms.raise_alarm("forged-source", f"{self._log.name}: {error}")
        else:
            counters.rx_denied += 1
            if isinstance(error, OtherMappingError):
                self._endpoint.trust.alarms.raise_alarm("other-mapping", f"{self._log.name}: {error}")
            self._log.warning("peer %d is not let in: %s", peer, error)
        self._engine().close_peer(peer)

    def may_stay(self, peer: int) -> bool:
        """Whether a new mapping still allows a peer; one that was not let in is judged by it when it is."""
        source = self._sources[peer]
        if source.hello is None:
            return True
        try:
            self._check(peer, source, source.hello)
        except VpcError as error:
            self._log.warning("peer %d is ended: %s", peer, error)
            return False
        return True

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._sources))

    def remove(self, peer: int) -> IncomingPeer | None:
        """Forget a peer that has ended; return what was known of it."""
        return self._sources.pop(peer, None)
