"""The peers that other cards have opened to a virtual function: what they said when they named themselves.

Nothing but an introduction is taken from a peer before it was let in (`introduction`, `introducer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from nitro_emu.peers.introduction import (
    INTRODUCTION_KEY,
    INTRODUCTION_REQUEST,
    MAX_INTRODUCTION_BYTES,
    Hello,
)
from nitro_emu.peers.remote import Remote, RemoteState
from srd.engine import Engine
from srd.io.addresses import host_text
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest

NAMING_S: Final = 5.0
"""Time in which a peer has to name itself, before it is closed."""


@dataclass(slots=True, eq=False)
class Source:
    """A peer that another card has opened."""

    host: str
    gid: bytes | None = None
    """None: it was not let in yet."""
    hello: Hello | None = None
    """What it said when it named itself."""
    is_naming: bool = False
    """Whether its HELLO was admitted; there is one."""
    welcome: npt.NDArray[np.uint8] | None = None
    """The answer, while it is sent."""
    queue_pairs: set[int] = field(default_factory=set)
    """Numbers of those that have reserved receive requests for it."""


class Sources:
    """Sources by the peer's number."""

    def __init__(self, *, engine: Callable[[], Engine], outgoing: Mapping[int, Remote]) -> None:
        """`outgoing`: the peers that this end has opened."""
        self._engine = engine
        self._outgoing = outgoing
        self._sources: dict[int, Source] = {}

    def admit_introduction(self, peer: int, *, length: int, count: int) -> Status | None:
        """Let a HELLO pass, once, and a WELCOME that this end waits for; return why not."""
        if length > MAX_INTRODUCTION_BYTES or count != 1:
            return Status.REMOTE_ERROR_BAD_LENGTH
        if (remote := self._outgoing.get(peer)) is not None:
            return None if remote.state is RemoteState.NAMING else Status.REMOTE_ERROR_ABORT
        source = self.add(peer)
        if source.is_naming:
            return Status.REMOTE_ERROR_ABORT
        source.is_naming = True
        return None

    def add(self, peer: int) -> Source:
        """Return the source behind a peer, which is known from its first packet on, before its event was delivered.

        It has to name itself in time.
        """
        source = self._sources.get(peer)
        if source is None:
            source = self._sources[peer] = Source(host_text(self._engine().peer(peer).address))
            asyncio.get_running_loop().call_later(NAMING_S, self._expire, peer)
        return source

    def _expire(self, peer: int) -> None:
        """Close a peer that has not named itself."""
        source = self._sources.get(peer)
        if source is not None and source.gid is None:
            self._engine().close_peer(peer)

    def get(self, peer: int) -> Source | None:
        """Return the source behind a peer; None: this end has opened it, or it has ended."""
        return self._sources.get(peer)

    def named(self, peer: int) -> Source | None:
        """Return the source behind a peer that was let in."""
        source = self._sources.get(peer)
        return None if source is None or source.gid is None else source

    def host_of(self, peer: int) -> str | None:
        """Return the host of a peer that another card has opened; None: it has ended."""
        source = self._sources.get(peer)
        return None if source is None else source.host

    def let_in(self, peer: int, *, hello: Hello, welcome: bytes) -> None:
        """Accept what a peer sends from now on, and tell it so. Raises UsageError if the peer is being closed."""
        if (source := self._sources.get(peer)) is None:
            return
        source.welcome = np.frombuffer(welcome, np.uint8)
        address = int(source.welcome.ctypes.data)
        self._engine().post(peer, WorkRequest(INTRODUCTION_REQUEST, len(welcome), address, key=INTRODUCTION_KEY))
        source.gid, source.hello = hello.source, hello

    def let_in_sources(self) -> list[tuple[int, str, Hello]]:
        """Return the peers that were let in: number, host, HELLO."""
        return [(peer, source.host, source.hello) for peer, source in self._sources.items() if source.hello is not None]

    def remove(self, peer: int) -> Source | None:
        """Forget a peer that has ended; return what was known of it."""
        return self._sources.pop(peer, None)
