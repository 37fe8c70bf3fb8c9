"""What `srd top` reads of a daemon: the JSON of a `snapshot`, checked, since anything may answer there."""

from __future__ import annotations

import json
from dataclasses import dataclass

from netns.base.decoding import decoded_untrusted
from srd.errors import SrdError


@dataclass(frozen=True, slots=True)
class PathSample:
    """One path (`srd.peer.PathStats`)."""

    path: int
    state: str
    smoothed_rtt_s: float | None
    inflight_bytes: int
    bytes: int
    retransmitted: int
    lost: int
    timeouts: int


@dataclass(frozen=True, slots=True)
class PeerSample:
    """One peer (`srd.stats.PeerStats`)."""

    number: int
    address: str
    tx_bytes: int
    rx_bytes: int
    retrans_pkts: int
    smoothed_rtt_s: float
    cwnd_bytes: int
    inflight_bytes: int
    paths: tuple[PathSample, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """An endpoint (`srd.stats.EndpointStats`), and its first peers."""

    title: str
    at_s: float
    peer_count: int
    tx_bytes: int
    rx_bytes: int
    rx_drops: int
    peers: tuple[PeerSample, ...]


def parse_untrusted(text: str) -> Sample:
    """Return the sample. Raises SrdError for anything else."""
    try:
        found = json.loads(text)
        totals = found["endpoint"]
        return decoded_untrusted(Sample, {**totals, "peer_count": totals["peers"], **found})
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SrdError("what answers there is no srd of this version") from error
