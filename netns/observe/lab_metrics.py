"""A lab's counters for Prometheus: those of every direction of every link, and the relay's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from netns.base.metrics import exposition
from netns.lab.lab import Lab, LinkCounters

_COUNTERS: Final = {
    "packets": "Packets that this direction of the link has carried.",
    "bytes": "Bytes of these packets.",
    "dropped": "Packets that the link's shape dropped: loss, or a full queue.",
}
_RELAY: Final[dict[str, tuple[str, Callable[[float], float], str]]] = {
    "cpu_seconds": ("cpu_seconds", float, "Processor time of the relay."),
    "late_total_us": ("late_seconds", lambda us: us / 1e6, "How much later than due packets left, added up."),
    "tap_drops": ("tap_drops", float, "Packets that the relay itself lost, as it was overloaded."),
}
"""What the relay counts of itself: name, conversion and meaning."""


class LabCollector(Collector):
    """Makes metrics of what was read of a lab."""

    def __init__(
        self, links: Mapping[str, LinkCounters], *, dead: Collection[str], relay: Mapping[str, Any] | None
    ) -> None:
        self._links = links
        self._dead = dead
        self._relay = relay

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        labels = ["link", "direction"]
        for name, meaning in _COUNTERS.items():
            family = CounterMetricFamily(f"netns_link_{name}", meaning, labels=labels)
            for each, now in self._directions():
                family.add_metric(each, now[name])
            yield family
        queued = GaugeMetricFamily(
            "netns_link_queued_packets", "Packets in the queue of the link's shape.", labels=labels
        )
        for each, now in self._directions():
            queued.add_metric(each, now.get("queued", 0))
        yield queued
        up = GaugeMetricFamily("netns_link_up", "Whether the link has no failure.", labels=["link"])
        for link in self._links:
            up.add_metric([link], link not in self._dead)
        yield up
        for key, (name, convert, meaning) in _RELAY.items() if self._relay is not None else ():
            own = CounterMetricFamily(f"netns_relay_{name}", meaning)
            own.add_metric([], convert((self._relay or {})[key]))
            yield own

    def _directions(self) -> Iterator[tuple[list[str], Mapping[str, int]]]:
        for link, directions in self._links.items():
            a, _, b = link.partition("-")
            yield [link, f"{a}>{b}"], directions["ab"]
            yield [link, f"{b}>{a}"], directions["ba"]


def lab_metrics(lab: Lab, *, as_openmetrics: bool) -> tuple[str, bytes]:
    """Return content type and text of a lab's metrics. Raises LabError when it is gone."""
    found = LabCollector(lab.counters(), dead=lab.dead_links(), relay=lab.relay_status())
    return exposition(found, as_openmetrics=as_openmetrics)
