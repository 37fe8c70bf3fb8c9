"""The peers behind address handles: opened when the first request needs them, and again after they have ended.

    IDLE --post--> OPENING --opened--> OPEN --ended--> IDLE
                   OPENING --ended (no answer, refused)--> IDLE; what waited ends with the status

1. All address handles of a virtual function with the same GID share one peer. Creating one never waits for the network.
2. A peer that this end has opened is used for sending only; what the other end sends comes over a peer of its own.
3. The first message over a peer names this end's GID (`HELLO_KEY`), since its packets may come from any source port.
   Messages that overtake it wait for it at the receiver.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from nitro_emu.abi.gid import GID_BYTES, address_of_untrusted
from srd.engine import Engine
from srd.errors import SrdError
from srd.io.addresses import host_port_text
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest

HELLO_KEY: Final = 0
"""The key of the message that names the sender's GID. No queue pair has the number 0."""
HELLO_REQUEST: Final = 0
"""The number of its work request; others begin behind it."""


class RemoteState(Enum):
    """States of a remote."""

    IDLE = auto()
    OPENING = auto()
    OPEN = auto()


class Remote:
    """One destination. `post` hands a request's posting to it: a call that takes the peer's number."""

    def __init__(
        self,
        gid: bytes,
        *,
        engine: Callable[[], Engine],
        hello_address: int,
        on_opening: Callable[[int, Remote], None],
    ) -> None:
        """`hello_address`: where this end's own GID lies; `on_opening` is called with the number of a new peer."""
        self.gid = gid
        self.users = 0
        """Address handles."""
        self.state = RemoteState.IDLE
        self.peer: int | None = None
        self.name = host_port_text(*address_of_untrusted(gid))
        self._engine = engine
        self._hello_address = hello_address
        self._on_opening = on_opening
        self._posts: deque[tuple[Callable[[int], None], Callable[[Status], None]]] = deque()

    @property
    def packet_bytes(self) -> int | None:
        """The payload of a packet to it; None while it is not open."""
        if self.state is not RemoteState.OPEN or self.peer is None:
            return None
        sender = self._engine().peer(self.peer).sender
        return None if sender is None else sender.segment_bytes

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
        host, port = address_of_untrusted(self.gid)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        address = (host, port, 0, 0) if ":" in host else (host, port)
        engine = self._engine()
        try:
            check = engine.trust.credential_check(host, name=self.name, expected=None)
            self.peer = engine.connect(address, family=family, name=self.name, check_credential=check)
        except SrdError:
            self._fail_waiting(Status.LOCAL_ERROR_UNREACH_REMOTE)
            return
        self.state = RemoteState.OPENING
        self._on_opening(self.peer, self)

    def on_opened(self) -> None:
        """Send what waited, after the message that names this end."""
        if self.peer is None:
            return
        self.state = RemoteState.OPEN
        hello = WorkRequest(HELLO_REQUEST, GID_BYTES, self._hello_address, key=HELLO_KEY)
        self._engine().post(self.peer, hello)
        while self._posts and self.state is RemoteState.OPEN:
            post, _ = self._posts.popleft()
            post(self.peer)

    def on_ended(self, status: Status) -> None:
        """End what waited; the next request opens a new peer."""
        self.state, self.peer = RemoteState.IDLE, None
        self._fail_waiting(status if status is not Status.OK else Status.REMOTE_ERROR_ABORT)

    def _fail_waiting(self, status: Status) -> None:
        waiting, self._posts = self._posts, deque()
        for _, fail in waiting:
            fail(status)

    def close(self) -> None:
        """Close the peer in an orderly way: no address handle is left."""
        if self.peer is not None:
            self._engine().close_peer(self.peer)
