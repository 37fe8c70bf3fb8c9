"""A snapshot as metrics: Prometheus' text format, or OpenMetrics where the client asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from netns.base import metrics
from netns.base.build import BUILD
from srd.metrics.snapshot import Family, PeerSnapshot, Snapshot
from srd.proto.paths.path import PathState
from srd.stats import EndpointStats, PeerStats

PREFIX: Final = "srd_"
PEER: Final = ["peer", "number"]
"""Labels of a peer: its address, and its number here, since several peers may come from one address."""
_GAUGES: Final = {
    "peers": ("peers", "Peers that are open now."),
    "free_bytes": ("free_bytes", "Receive memory that is free now."),
    "streams": ("streams", "Byte streams that are open now."),
    "smoothed_rtt_s": ("smoothed_rtt_seconds", "Smoothed round trip."),
    "cwnd_bytes": ("cwnd_bytes", "Congestion window now."),
    "inflight_bytes": ("inflight_bytes", "Bytes sent, and neither acknowledged nor lost."),
}
"""The fields that are no counters: name and meaning."""
_COUNTERS: Final = {
    "tx_pkts": "Data packets sent, retransmissions too.",
    "tx_bytes": "Bytes of data packets sent, headers included.",
    "rx_pkts": "Data packets received, duplicates too.",
    "rx_bytes": "Bytes of data packets received, headers included.",
    "rx_duplicates": "Data packets that had been received before.",
    "recv_bytes": "Payload bytes that have landed.",
    "retrans_pkts": "Data packets that were sent again.",
    "retrans_bytes": "Bytes of data packets that were sent again.",
    "retrans_timeout_events": "Timeouts of a path.",
    "impaired_remote_conn_events": "Times that a path was quarantined.",
    "unresponsive_remote_events": "Peers that stopped answering.",
    "rx_drops": "Datagrams that this host dropped: a socket's buffer was full, or the region had no free memory.",
    "bytes_copied": "Payload bytes that were copied.",
    "copied_bytes": "Payload bytes that sending copied, since they did not lie in a region.",
    "linear_bytes": "Payload bytes that landed in host memory, because no rule steered them to a bound region.",
    "ecn_ce_pkts": "Data packets that arrived there with a congestion mark (ECN CE).",
}
"""The counters: meaning."""


class SnapshotCollector(Collector):
    """Makes metrics of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        stats, peers = self._snapshot.stats, self._snapshot.peers
        build = InfoMetricFamily(f"{PREFIX}build", "The software that runs here.")
        build.add_metric([], {"build": BUILD, "title": self._snapshot.title})
        yield build
        for field in fields(EndpointStats):
            family = _family(field.name, prefix=PREFIX, labels=[])
            family.add_metric([], getattr(stats, field.name))
            yield family
        unlisted = GaugeMetricFamily(f"{PREFIX}unlisted_peers", "Open peers without series of their own.")
        unlisted.add_metric([], stats.peers - len(peers))
        yield unlisted
        for field in fields(PeerStats):
            family = _family(field.name, prefix=f"{PREFIX}peer_", labels=PEER)
            for peer in peers:
                family.add_metric([peer.address, str(peer.number)], getattr(peer.stats, field.name))
            yield family
        yield _paths(peers)
        yield from map(_metric, self._snapshot.families)


def _family(name: str, *, prefix: str, labels: list[str]) -> CounterMetricFamily | GaugeMetricFamily:
    if name in _GAUGES:
        gauge, meaning = _GAUGES[name]
        return GaugeMetricFamily(f"{prefix}{gauge}", meaning, labels=labels)
    return CounterMetricFamily(f"{prefix}{name}", _COUNTERS[name], labels=labels)


def _paths(peers: list[PeerSnapshot]) -> Metric:
    """Return how many paths of each peer are in each state: few series, however many paths there are."""
    family = GaugeMetricFamily(f"{PREFIX}peer_paths", "Paths to the peer, by state.", labels=[*PEER, "state"])
    for peer in peers:
        for state in PathState:
            count = sum(path.state is state for path in peer.paths)
            family.add_metric([peer.address, str(peer.number), state.name.lower()], count)
    return family


class _Labelled(Collector):
    def __init__(self, families: Mapping[str, Sequence[Family]], label: str) -> None:
        self._families = families
        self._label = label

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        for same in zip(*self._families.values(), strict=True):
            metric = _empty(same[0], self._label)
            for value, family in zip(self._families, same, strict=True):
                _fill(metric, family, value)
            yield metric


def _metric(family: Family) -> Metric:
    metric = _empty(family)
    _fill(metric, family)
    return metric


def _empty(family: Family, *labels: str) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
    return kind(family.name, family.meaning, labels=[*labels, *([] if family.label is None else [family.label])])


def _fill(metric: CounterMetricFamily | GaugeMetricFamily, family: Family, *values: str) -> None:
    for value_label, value in family.values.items():
        metric.add_metric([*values, *([] if family.label is None else [value_label])], value)


def families_text(families: Mapping[str, Sequence[Family]], *, label: str) -> str:
    """Return the same metrics of several things in OpenMetrics; `label`: of the key, which tells them apart."""
    return metrics.exposition(_Labelled(families, label), as_openmetrics=True)[1].decode()


def exposition(snapshot: Snapshot, *, as_openmetrics: bool) -> tuple[str, bytes]:
    """Return content type and text of the metrics, and of the process's own."""
    own = ProcessCollector(registry=None)
    return metrics.exposition(SnapshotCollector(snapshot), own, as_openmetrics=as_openmetrics)
