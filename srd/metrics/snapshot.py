"""The state of an endpoint and its peers at one moment, read without holding up the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from netns.base.addresses import host_port_text
from srd.endpoint import Endpoint
from srd.peer import PathStats, Peer
from srd.stats import EndpointStats, PeerStats, with_peers

MAX_LISTED_PEERS: Final = 64
"""Most peers with series of their own: those that were opened first, so that the series last."""
_AT_ONCE: Final = 8
"""Peers that are read before other tasks have a turn: about half a millisecond."""


@dataclass(frozen=True, slots=True)
class PeerSnapshot:
    """One peer."""

    number: int
    """Its number at this endpoint."""
    address: str
    incoming: bool
    stats: PeerStats
    paths: list[PathStats]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric of whoever uses the endpoint."""

    name: str
    meaning: str
    is_counter: bool
    label: str | None
    """Of each value; None: there is one value, without a label."""
    values: Mapping[str, float]
    """By the label's value."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An endpoint."""

    title: str
    """What listens or connects, for people."""
    at_s: float
    """On a monotonic clock."""
    stats: EndpointStats
    peers: list[PeerSnapshot]
    """`MAX_LISTED_PEERS` at most."""
    families: Sequence[Family] = ()

    def as_json(self) -> dict[str, Any]:
        """Return what `srd top` reads: paths that were never used are left out."""
        peers = [
            {
                "number": peer.number,
                "address": peer.address,
                "incoming": peer.incoming,
                **asdict(peer.stats),
                "paths": [_path(path) for path in peer.paths if path.counters.packets],
            }
            for peer in self.peers
        ]
        return {"title": self.title, "at_s": self.at_s, "endpoint": asdict(self.stats), "peers": peers}


def _path(path: PathStats) -> dict[str, Any]:
    return {
        "path": path.path,
        "state": path.state.name.lower(),
        "smoothed_rtt_s": path.smoothed_rtt_s,
        "inflight_bytes": path.inflight_bytes,
        **asdict(path.counters),
    }


async def collect(
    endpoint: Endpoint, *, title: str, families: Callable[[], Sequence[Family]] | None = None
) -> Snapshot:
    """Read an endpoint's counters, which never decrease from one snapshot to the next, and those of its user.

    A peer that ends meanwhile counts once: its own counters last, and the sums of those that have ended are older.
    """
    ended, peers = endpoint.ended_stats(), endpoint.peers
    stats: list[PeerStats] = []
    listed: list[PeerSnapshot] = []
    for begin in range(0, len(peers), _AT_ONCE):
        for peer in peers[begin : begin + _AT_ONCE]:
            stats.append(peer.stats())
            if len(listed) < MAX_LISTED_PEERS:
                listed.append(_listed(peer, stats[-1]))
        await asyncio.sleep(0)
    return Snapshot(title, time.monotonic(), with_peers(ended, stats), listed, families() if families else ())


def _listed(peer: Peer, stats: PeerStats) -> PeerSnapshot:
    return PeerSnapshot(peer.number, host_port_text(*peer.address), peer.incoming, stats, peer.paths)
