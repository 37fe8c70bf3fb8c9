"""Counters of a peer and of an endpoint, as they are at one moment.

What EFA's driver counts has EFA's name (`rdma statistic`, /sys/class/infiniband/*/ports/1/hw_counters).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, get_type_hints

from srd.proto.endpoint.peer import PeerCore


def meanings(kind: type) -> dict[str, str]:
    """Return what each counter of a dataclass means, as its annotation says."""
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(kind, include_extras=True).items()}


@dataclass(frozen=True, slots=True)
class PeerTotals:
    """What an endpoint adds up of its peers. The last packet of a message counts as a full one in `tx_bytes`."""

    tx_pkts: Annotated[int, "Data packets sent, retransmissions too."] = 0
    tx_bytes: Annotated[int, "Bytes of data packets sent, headers included."] = 0
    rx_pkts: Annotated[int, "Data packets received, duplicates too."] = 0
    rx_bytes: Annotated[int, "Bytes of data packets received, headers included."] = 0
    rx_duplicates: Annotated[int, "Data packets that had been received before."] = 0
    recv_bytes: Annotated[int, "Payload bytes that have landed, of complete and incomplete messages."] = 0
    retrans_pkts: Annotated[int, "Data packets that were sent again."] = 0
    retrans_bytes: Annotated[int, "Bytes of data packets that were sent again."] = 0
    retrans_timeout_events: Annotated[int, "Timeouts of a path."] = 0
    impaired_remote_conn_events: Annotated[int, "Times that a path was quarantined."] = 0


@dataclass(frozen=True, slots=True)
class PeerStats(PeerTotals):
    """A peer's counters, since it was opened."""

    ecn_ce_pkts: Annotated[int, "Data packets that arrived there with a congestion mark (ECN CE)."] = 0
    copied_bytes: Annotated[int, "Payload bytes that sending copied, since they did not lie in a region."] = 0
    streams: Annotated[int, "Byte streams that are open now."] = 0
    smoothed_rtt_s: Annotated[float, "Smoothed round trip; before the first sample, what is assumed."] = 0.0
    cwnd_bytes: Annotated[int, "Congestion window now."] = 0
    inflight_bytes: Annotated[int, "Bytes sent, and neither acknowledged nor lost."] = 0


@dataclass(frozen=True, slots=True)
class EndpointStats(PeerTotals):
    """An endpoint's counters, since it was opened: those of its peers added up, also of peers that have ended."""

    peers: Annotated[int, "Peers that are open now."] = 0
    unresponsive_remote_events: Annotated[int, "Peers that stopped answering."] = 0
    rx_drops: Annotated[
        int, "Datagrams that this host dropped: a socket's buffer was full, or the region had no free memory."
    ] = 0
    bytes_copied: Annotated[int, "Payload bytes that were copied."] = 0
    linear_bytes: Annotated[
        int, "Payload bytes that landed in host memory, because no rule steered them to a bound region."
    ] = 0
    free_bytes: Annotated[int, "Receive memory that is free now."] = 0


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
