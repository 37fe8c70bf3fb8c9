"""The peers behind address handles: opened when the first request needs them, and again after they have ended.

    IDLE --post--> OPENING --opened--> NAMING --WELCOME--> OPEN --ended--> IDLE
                   OPENING, NAMING --ended (no answer, refused)--> IDLE; what waited ends with the status

1. All address handles of a virtual function with the same GID share one peer. Creating one never waits for the network.
2. A peer that this end has opened is used for sending only; what the other end sends comes over a peer of its own.
3. Where a GID is, and whether it may be sent to, is looked up for each new peer (`tenancy`).
4. Requests are posted once the responder has let this end in (`introduction`).
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from netns.base.addresses import host_port_text
from nitro_emu.errors import TrustError, VpcError
from nitro_emu.gid import gid_text
from nitro_emu.peers.introduction import INTRODUCTION_KEY, INTRODUCTION_REQUEST
from nitro_emu.peers.tenancy import Destination, Tenancy
from srd.engine import Engine
from srd.errors import SrdError
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from srd.secure.keys import fingerprint


class RemoteState(Enum):
    """States of a remote."""

    IDLE = auto()
    OPENING = auto()
    NAMING = auto()
    OPEN = auto()


class Remote:
    """One destination. `post` hands a request's posting to it: a call that takes the peer's number."""

    def __init__(
        self,
        gid: bytes,
        *,
        engine: Callable[[], Engine],
        tenancy: Tenancy,
        check_egress: Callable[[str], None],
        on_opening: Callable[[int, Remote], None],
        on_denied: Callable[[str], None],
    ) -> None:
        """Prepare to send to a GID.

        `check_egress` raises TrustError for a host that the card may not send to; `on_opening` is called with the
        number of a new peer; `on_denied` with the reason why there is none.
        """
        self.gid = gid
        self.users = 0
        """Address handles."""
        self.state = RemoteState.IDLE
        self.peer: int | None = None
        self.name = gid_text(gid)
        self.destination: Destination | None = None
        """Where its peer is, or was the last time."""
        self._engine = engine
        self._tenancy = tenancy
        self._check_egress = check_egress
        self._on_opening = on_opening
        self._on_denied = on_denied
        self._hello: npt.NDArray[np.uint8] = np.empty(0, np.uint8)  # while it is sent
        self._posts: deque[tuple[Callable[[int], None], Callable[[Status], None]]] = deque()

    @property
    def packet_bytes(self) -> int | None:
        """The payload of a packet to it; None while it is not open."""
        if self.state is not RemoteState.OPEN or self.peer is None:
            return None
        return self._engine().peer(self.peer).sender.segment_bytes

    @property
    def open_peer(self) -> int | None:
        """The number of the peer, if it is open."""
        return self.peer if self.state is RemoteState.OPEN else None

    def post(self, post: Callable[[int], None], *, fail: Callable[[Status], None]) -> None:
        """Call `post` with the number of the peer when it is open; or `fail`, if it cannot be opened."""
        self._posts.append((post, fail))
        if self.state is RemoteState.IDLE:
            self._open()

    def _open(self) -> None:
        try:
            destination = self._tenancy.destination(self.gid)
            self._check_egress(destination.host)
            self.peer = self._connect(destination)
        except (VpcError, TrustError) as error:
            self._on_denied(str(error))
        except SrdError as error:
            self._on_denied(f"{self.name}: {error}")
        if self.peer is None:
            self._fail_waiting(Status.LOCAL_ERROR_UNREACH_REMOTE)
            return
        self.state = RemoteState.OPENING
        self._on_opening(self.peer, self)

    def _connect(self, destination: Destination) -> int:
        host, port = destination.host, destination.port
        self.destination, self.name = destination, host_port_text(host, port)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        address = (host, port, 0, 0) if ":" in host else (host, port)
        expected = None if destination.public_key is None else fingerprint(destination.public_key)
        engine = self._engine()
        check = engine.trust.credential_check(host, name=self.name, expected=expected)
        return engine.connect(address, family=family, name=self.name, check_credential=check)

    def on_opened(self) -> None:
        """Note that the peer is open; it is to be sent a HELLO."""
        self.state = RemoteState.NAMING

    def say_hello(self, message: bytes) -> None:
        """Send the HELLO; requests wait for the WELCOME."""
        if self.peer is None:
            return
        self._hello = np.frombuffer(message, np.uint8)
        request = WorkRequest(INTRODUCTION_REQUEST, len(message), int(self._hello.ctypes.data), key=INTRODUCTION_KEY)
        self._engine().post(self.peer, request)

    def on_welcomed(self) -> None:
        """Send what waited."""
        if self.peer is None:
            return
        self.state = RemoteState.OPEN
        while self._posts and self.state is RemoteState.OPEN:
            post, _ = self._posts.popleft()
            post(self.peer)

    def on_ended(self, status: Status) -> None:
        """End what waited; the next request opens a new peer."""
        was_let_in = self.state is RemoteState.OPEN
        self.state, self.peer = RemoteState.IDLE, None
        if status in (Status.OK, Status.FLUSHED):  # one of the two ends has closed it
            status = Status.REMOTE_ERROR_ABORT if was_let_in else Status.LOCAL_ERROR_UNREACH_REMOTE
        self._fail_waiting(status)

    def _fail_waiting(self, status: Status) -> None:
        waiting, self._posts = self._posts, deque()
        for _, fail in waiting:
            fail(status)

    def close(self) -> None:
        """Close the peer in an orderly way: no address handle is left."""
        if self.peer is not None:
            self._engine().close_peer(self.peer)
