"""What `srd top` reads of a daemon: the JSON of a `snapshot`, checked, since anything may answer there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar, get_type_hints

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


T = TypeVar("T", PathSample, PeerSample)


def parse_untrusted(text: str) -> Sample:
    """Return the sample. Raises SrdError for anything else."""
    try:
        found = json.loads(text)
        totals = found["endpoint"]
        tx_bytes, rx_bytes, rx_drops = (_number(totals[name]) for name in ("tx_bytes", "rx_bytes", "rx_drops"))
        peers = tuple(_peer(each) for each in _list(found["peers"]))
        title, at_s, peer_count = _text(found["title"]), _seconds(found["at_s"]), _number(totals["peers"])
        return Sample(title, at_s, peer_count, tx_bytes, rx_bytes, rx_drops, peers)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError) as error:
        raise SrdError("what answers there is no srd of this version") from error


def _peer(found: dict[str, Any]) -> PeerSample:
    return _made(PeerSample, found, paths=tuple(_made(PathSample, each) for each in _list(found["paths"])))


def _made(kind: type[T], found: dict[str, Any], **made: Any) -> T:
    hints = get_type_hints(kind)
    checks: dict[Any, Callable[[object], Any]] = {
        int: _number,
        float: _seconds,
        str: _text,
        float | None: _optional_seconds,
    }
    values: dict[str, Any] = {
        field.name: checks[hints[field.name]](found[field.name]) for field in fields(kind) if field.name not in made
    }
    return kind(**values, **made)


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise TypeError
    return value


def _seconds(value: object) -> float:
    if not isinstance(value, (int, float)) or not 0 <= value < 1e12:  # also no NaN
        raise TypeError
    return float(value)


def _optional_seconds(value: object) -> float | None:
    return None if value is None else _seconds(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value[:256]
