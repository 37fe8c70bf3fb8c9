"""Counters of a peer and of an endpoint, as they are at one moment.

What EFA's driver counts has EFA's name (`rdma statistic`, /sys/class/infiniband/*/ports/1/hw_counters).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from srd.proto.endpoint.peer import PeerCore


@dataclass(frozen=True, slots=True)
class PeerTotals:
    """What an endpoint adds up of its peers. Packets are data packets; bytes of packets include their headers."""

    tx_pkts: int = 0
    """Packets sent, retransmissions too."""
    tx_bytes: int = 0
    """Bytes of these; the last packet of a message counts as a full one."""
    rx_pkts: int = 0
    """Packets received, duplicates too."""
    rx_bytes: int = 0
    """Bytes of these."""
    rx_duplicates: int = 0
    """Packets that had been received before."""
    recv_bytes: int = 0
    """Payload that has landed, of complete and incomplete messages."""
    retrans_pkts: int = 0
    """Packets that were sent again."""
    retrans_bytes: int = 0
    """Bytes of these."""
    retrans_timeout_events: int = 0
    """Timeouts of a path."""
    impaired_remote_conn_events: int = 0
    """Times that a path was quarantined."""


@dataclass(frozen=True, slots=True)
class PeerStats(PeerTotals):
    """A peer's counters, since it was opened."""

    ecn_ce_pkts: int = 0
    """Packets that arrived there with a congestion mark (ECN CE)."""
    copied_bytes: int = 0
    """Bytes that `Peer.send` copied, since they did not lie in a region."""
    streams: int = 0
    """Streams that are open now."""
    smoothed_rtt_s: float = 0.0
    """Smoothed round trip; before the first sample, what is assumed."""
    cwnd_bytes: int = 0
    """Congestion window now."""
    inflight_bytes: int = 0
    """Bytes in flight now."""


@dataclass(frozen=True, slots=True)
class EndpointStats(PeerTotals):
    """An endpoint's counters, since it was opened: those of its peers added up, also of peers that have ended."""

    peers: int = 0
    """Peers that are open now."""
    unresponsive_remote_events: int = 0
    """Peers that stopped answering."""
    rx_drops: int = 0
    """Datagrams that this host dropped: a socket's buffer was full, or the region had no free memory."""
    bytes_copied: int = 0
    """Payload bytes that were copied: on the slow receive path, into registered memory, by `gather` and `send`."""
    linear_bytes: int = 0
    """Payload that landed in host memory, because no rule steered it to a bound region."""
    free_bytes: int = 0
    """Receive memory that is free now, of `EndpointConfig.receive_region_bytes`."""


TOTALS = tuple(field.name for field in fields(PeerTotals))
"""The counters that an endpoint adds up."""


def peer_stats(core: PeerCore, *, copied_bytes: int, streams: int) -> PeerStats:
    """Return a peer's counters."""
    sender, receiver = core.sender, core.receiver
    counters = [path.counters for path in sender.paths]
    return PeerStats(
        tx_pkts=sender.packets,
        tx_bytes=sum(path.bytes for path in counters),
        rx_pkts=receiver.packets,
        rx_bytes=receiver.received_bytes,
        rx_duplicates=receiver.duplicates,
        recv_bytes=receiver.landed_bytes,
        retrans_pkts=sender.retransmitted,
        retrans_bytes=sum(path.retransmitted_bytes for path in counters),
        retrans_timeout_events=sum(path.timeouts for path in counters),
        impaired_remote_conn_events=sum(path.quarantines for path in counters),
        ecn_ce_pkts=sum(path.ecn_ce for path in counters),
        copied_bytes=copied_bytes,
        streams=streams,
        smoothed_rtt_s=sender.rtt_s,
        cwnd_bytes=int(sender.controller.window_bytes),
        inflight_bytes=sender.inflight_bytes,
    )


def with_peers(ended: EndpointStats, peers: Sequence[PeerStats]) -> EndpointStats:
    """Return an endpoint's counters, of its peers that have ended, with those of open peers."""
    sums = {name: getattr(ended, name) + sum(getattr(stats, name) for stats in peers) for name in TOTALS}
    return replace(ended, peers=len(peers), **sums)


class Totals:
    """The counters of an endpoint's peers that have ended."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(TOTALS, 0)
        self.unresponsive_remote_events = 0

    def add(self, stats: PeerStats) -> None:
        """Add the counters of a peer."""
        for name in TOTALS:
            self._sums[name] += getattr(stats, name)

    @property
    def sums(self) -> dict[str, int]:
        """The sums, by name."""
        return dict(self._sums)
