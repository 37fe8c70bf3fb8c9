"""The peers behind address handles: opened when the first request needs them, and again after they have ended.

    IDLE --post--> OPENING --opened--> NAMING --WELCOME--> OPEN --ended--> IDLE
                   OPENING, NAMING --ended (no answer, refused)--> IDLE; what waited ends with the status

The HELLO of NAMING, and the WELCOME, may have a document of a security chip, which takes a while. What is wrong with a
WELCOME closes the peer.

1. All address handles of a virtual function with the same GID share one peer. Creating one never waits for the network.
2. A peer that this end has opened is used for sending only; what the other end sends comes over a peer of its own.
3. Where a GID is, and whether it may be sent to, is looked up for each new peer (`tenancy`).
4. Requests are posted once the responder has let this end in (`introduction`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from netns.base.addresses import host_port_text
from nitro_emu.errors import AbiError, TrustError, VpcError
from nitro_emu.gid import gid_text
from nitro_emu.peers.introduction import INTRODUCTION_KEY, INTRODUCTION_REQUEST, Proofs, VfHello, welcome_untrusted
from nitro_emu.peers.tenancy import Tenancy, VfAddress
from nitro_emu.peers.vf_trust import VfTrust
from srd.engine import Engine
from srd.errors import SrdError
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from srd.secure.keys import fingerprint

WELCOME_S: Final = 20.0
"""How long this end waits to be let in: twice as long as a security chip may take for a document."""


class RemoteState(Enum):
    """States of a remote."""

    IDLE = auto()
    OPENING = auto()
    NAMING = auto()
    OPEN = auto()


class OutgoingPeer:
    """One destination. `post` hands a request's posting to it: a call that takes the peer's number."""

    def __init__(
        self,
        gid: bytes,
        *,
        engine: Callable[[], Engine],
        trust: VfTrust,
        proofs: Proofs,
        outgoing: dict[int, OutgoingPeer],
        log: logging.Logger,
    ) -> None:
        """Prepare to send to a GID. `outgoing`: by number of the peer, to which its own are added."""
        self.gid = gid
        self.users = 0
        """Address handles."""
        self.state = RemoteState.IDLE
        self.peer: int | None = None
        self.name = gid_text(gid)
        self.destination: VfAddress | None = None
        """Where its peer is, or was the last time."""
        self._engine = engine
        self._trust = trust
        self._proofs = proofs
        self._outgoing = outgoing
        self._log = log
        self._hello: npt.NDArray[np.uint8] = np.empty(0, np.uint8)  # while it is sent
        self._posts: dict[int, tuple[Callable[[int], None], Callable[[Status], None]]] = {}  # by the caller's number

    @property
    def packet_bytes(self) -> int | None:
        """The payload of a packet to it; None while it is not open."""
        if self.state is not RemoteState.OPEN or self.peer is None:
            return None
        return self._engine().core.peer(self.peer).sender.segment_bytes

    @property
    def open_peer(self) -> int | None:
        """The number of the peer, if it is open."""
        return self.peer if self.state is RemoteState.OPEN else None

    def post(self, post: Callable[[int], None], *, fail: Callable[[Status], None], number: int) -> None:
        """Call `post` with the number of the peer when it is open; or `fail`, if it cannot be opened.

        `number`: the request's, by which it can be withdrawn; no two that wait have the same.
        """
        self._posts[number] = post, fail
        if self.state is RemoteState.IDLE:
            self._open()

    def withdraw(self, number: int) -> bool:
        """Forget a request that waits for the peer; return whether there was one."""
        return self._posts.pop(number, None) is not None

    def _open(self) -> None:
        try:
            destination = self._trust.tenancy.destination(self.gid)
            self._trust.check_egress(destination.host)
            self.peer = self._connect(destination)
        except (VpcError, TrustError) as error:
            self._deny(str(error))
        except SrdError as error:
            self._deny(f"{self.name}: {error}")
        if self.peer is None:
            self._fail_waiting(Status.LOCAL_ERROR_UNREACH_REMOTE)
            return
        self.state = RemoteState.OPENING
        self._outgoing[self.peer] = self

    def _connect(self, destination: VfAddress) -> int:
        host, port = destination.host, destination.port
        self.destination, self.name = destination, host_port_text(host, port)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        address = (host, port, 0, 0) if ":" in host else (host, port)
        expected = None if destination.public_key is None else fingerprint(destination.public_key)
        engine = self._engine()
        check = engine.trust.credential_check(host, name=self.name, expected=expected)
        return engine.connect(address, family=family, name=self.name, check_credential=check)

    def _deny(self, reason: str) -> None:
        note_denied(reason, tenancy=self._trust.tenancy, log=self._log)

    def on_opened(self) -> None:
        """Say HELLO over the peer; requests wait for the WELCOME."""
        if self.peer is None or self.destination is None:
            return
        self.state = RemoteState.NAMING
        self._note_key(self.peer, self.destination)
        there = self.destination
        hello = VfHello(there.vpc_id, self._trust.tenancy.gid, self.gid, map_version=there.map_version)
        self._proofs.with_document(partial(self._say, hello), peer=self.peer, initiates=True)
        asyncio.get_running_loop().call_later(WELCOME_S, self._on_no_welcome, self.peer)

    def _say(self, hello: VfHello, document: bytes) -> None:
        if self.peer is None:
            return
        message = replace(hello, document=document).pack()
        self._hello = np.frombuffer(message, np.uint8)
        request = WorkRequest(INTRODUCTION_REQUEST, len(message), int(self._hello.ctypes.data), key=INTRODUCTION_KEY)
        self._engine().post(self.peer, request)

    def _note_key(self, peer: int, destination: VfAddress) -> None:
        """Add a host's key to the known hosts, unless the mapping has it."""
        known_hosts = self._engine().trust.known_hosts
        if known_hosts is None or destination.public_key is not None:
            return
        try:
            known_hosts.add(self.name, self._proofs.key_of(peer))
        except SrdError as error:
            self._log.warning("%s: its key cannot be noted: %s", self.name, error)

    def _on_no_welcome(self, peer: int) -> None:
        """Give a peer up that has not let this end in."""
        if self.peer == peer and self._give_up(f"{self.name}: it has not let this end in for {WELCOME_S:.0f} s"):
            self._engine().flush_peer(peer)

    def on_refused_hello(self, status: Status) -> None:
        """Give a peer up that did not take the HELLO."""
        self._give_up(f"{self.name}: it has not taken the HELLO ({status.name})")

    def _give_up(self, reason: str) -> bool:
        """Close a peer that has not let this end in; return whether it was closed."""
        if self.peer is None or self.state is not RemoteState.NAMING:
            return False
        self._deny(reason)
        self._engine().close_peer(self.peer)
        return True

    def on_welcome_untrusted(self, message: bytes) -> None:
        """Send what waited, if the peer is what this end requires; else give it up."""
        if self.peer is None or self.state is not RemoteState.NAMING:
            return
        try:
            self._proofs.check_untrusted(welcome_untrusted(message), peer=self.peer, initiates=True)
        except (AbiError, TrustError) as error:
            self._give_up(f"{self.name}: {error}")
            return
        self.state = RemoteState.OPEN
        while self._posts and self.state is RemoteState.OPEN:
            post, _ = self._posts.pop(next(iter(self._posts)))
            post(self.peer)

    def may_stay(self) -> bool:
        """Whether a new mapping still allows the peer, and has it in the same place."""
        try:
            if self._trust.tenancy.destination(self.gid).place == (self.destination and self.destination.place):
                return True
            self._log.info("%s has moved", self.name)
        except VpcError as error:
            self._log.warning("%s is ended: %s", self.name, error)
        return False

    def on_ended(self, status: Status) -> None:
        """End what waited; the next request opens a new peer."""
        was_let_in = self.state is RemoteState.OPEN
        self.state, self.peer = RemoteState.IDLE, None
        if status in (Status.OK, Status.FLUSHED):  # one of the two ends has closed it
            status = Status.REMOTE_ERROR_ABORT if was_let_in else Status.LOCAL_ERROR_UNREACH_REMOTE
        self._fail_waiting(status)

    def _fail_waiting(self, status: Status) -> None:
        waiting, self._posts = self._posts, {}
        for _, fail in waiting.values():
            fail(status)

    def close(self) -> None:
        """Close the peer in an orderly way: no address handle is left."""
        if self.peer is not None:
            self._engine().close_peer(self.peer)


def note_denied(reason: str, *, tenancy: Tenancy, log: logging.Logger) -> None:
    """Count a destination that the tenant may not send to."""
    tenancy.counters.tx_denied += 1
    log.warning("denied: %s", reason)
