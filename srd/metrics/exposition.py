"""A snapshot as metrics: Prometheus' text format, or OpenMetrics where the client asks for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from netns.base import metrics
from netns.base.build import BUILD
from srd.metrics.snapshot import Family, PeerSnapshot, Snapshot
from srd.proto.paths.path import PathState
from srd.stats import EndpointStats, PeerStats, meanings

PREFIX: Final = "srd_"
PEER: Final = ["peer", "number"]
"""Labels of a peer: its address, and its number here, since several peers may come from one address."""
_GAUGES: Final = frozenset({"peers", "free_bytes", "streams", "smoothed_rtt_s", "cwnd_bytes", "inflight_bytes"})
"""The fields that are no counters."""


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
        for name, family in _families(EndpointStats, prefix=PREFIX, labels=[]).items():
            family.add_metric([], getattr(stats, name))
            yield family
        unlisted = GaugeMetricFamily(f"{PREFIX}unlisted_peers", "Open peers without series of their own.")
        unlisted.add_metric([], stats.peers - len(peers))
        yield unlisted
        for name, family in _families(PeerStats, prefix=f"{PREFIX}peer_", labels=PEER).items():
            for peer in peers:
                family.add_metric([peer.address, str(peer.number)], getattr(peer.stats, name))
            yield family
        yield _paths(peers)
        yield from map(_metric, self._snapshot.families)


def _families(kind: type, *, prefix: str, labels: list[str]) -> dict[str, CounterMetricFamily | GaugeMetricFamily]:
    """Return an empty metric for each field, in the base unit."""
    return {
        name: GaugeMetricFamily(re.sub("_s$", "_seconds", prefix + name), meaning, labels=labels)
        if name in _GAUGES
        else CounterMetricFamily(prefix + name, meaning, labels=labels)
        for name, meaning in meanings(kind).items()
    }


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
