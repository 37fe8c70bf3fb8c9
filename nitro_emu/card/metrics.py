"""A card's counters for Prometheus.

Names are EFA's with the prefix efa_, as in efa_tx_bytes_total{vf="efa_0"}, ENA's with the prefix ena_, and nitro_ for
what only this card counts. Counters of the device have no prefix of their own: no name is in both of EFA's groups.
Volumes have those of `nitro_emu.ebs.metrics`, whose label `volume` is the virtual function's name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from netns.base.http_server import Handler, wants_openmetrics
from netns.base.metrics import exposition
from nitro_emu.ebs.metrics import VolumeCollector

Stats = Mapping[str, Any]
"""What `Card.stats` returns."""

_GROUPS: Final = {
    "port": ("efa_", "EFA's counter of the port"),
    "device": ("efa_", "EFA's counter of the device"),
    "ena": ("ena_", "A counter of ENA Express"),
    "allowance": ("ena_", "ENA's counter of packets that waited, or were dropped"),
    "security": ("nitro_", "Packets dropped that were not authentic, or received before"),
    "vpc": ("nitro_vpc_", "Peers and address handles that VPC and security groups refused"),
}
"""Groups of counters, with the prefix of their names and what they are."""


_FURTHER: Final[tuple[tuple[str, type[CounterMetricFamily | GaugeMetricFamily], str, str], ...]] = (
    ("qkey_viol", CounterMetricFamily, "efa_qkey_viol", "Messages dropped for a wrong qkey."),
    ("bytes_copied", CounterMetricFamily, "efa_bytes_copied", "Payload bytes that the card has copied."),
    ("resources/kind", GaugeMetricFamily, "efa_resources", "Resources in use, by kind."),
    ("dropped/reason", CounterMetricFamily, "nitro_inner_drops", "The tenant's packets dropped."),
    ("ena_state.flows", GaugeMetricFamily, "nitro_flows", "Flows tracked for security groups."),
    ("ena_state.ena_srd_mode", GaugeMetricFamily, "ena_srd_mode", "ENA Express: 3 is TCP and UDP."),
    (
        "ena_state.ena_srd_resource_utilization",
        GaugeMetricFamily,
        "ena_srd_resource_utilization",
        "Percent of its memory in use.",
    ),
)
"""What else there is: where it stands, with the label of what stands there by name, if it is several values."""


class VfCollector(Collector):
    """Makes metrics of the statistics of the VFs."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        vfs: dict[str, Mapping[str, Any]] = self._stats["vfs"]
        for group, (prefix, help_text) in _GROUPS.items():
            have = {vf: values[group] for vf, values in vfs.items() if group in values}
            for name in next(iter(have.values()), ()):
                metric = name.removeprefix("ena_") if prefix == "ena_" else name
                family = CounterMetricFamily(f"{prefix}{metric}", f"{help_text}, {name}.", labels=["vf"])
                for vf, counters in have.items():
                    family.add_metric([vf], counters[name])
                yield family
        for place, make, name, help_text in _FURTHER:
            path, _, label = place.partition("/")
            found = make(name, help_text, labels=["vf", label] if label else ["vf"])
            for vf, values in vfs.items():
                for labels, value in _values(values, path=path, is_labelled=bool(label)):
                    found.add_metric([vf, *labels], value)
            if found.samples:
                yield found
        if volumes := {vf: values for vf, values in vfs.items() if "requests" in values}:
            yield from VolumeCollector(volumes).collect()
        alarms = CounterMetricFamily("nitro_alarms", "Alarms, by kind.", labels=["kind"])
        for kind, count in self._stats.get("alarms", {}).items():
            alarms.add_metric([kind], count)
        yield alarms


def _values(values: Mapping[str, Any], *, path: str, is_labelled: bool) -> Iterator[tuple[list[str], float]]:
    """Yield what a virtual function has at a place of `_FURTHER`, with its labels; nothing if it is of another kind."""
    group, _, key = path.partition(".")
    if group in values:
        value = values[group][key] if key else values[group]
        yield from (([label], each) for label, each in value.items()) if is_labelled else [([], value)]


def metrics_text(stats: Stats) -> str:
    """Return the metrics in Prometheus' text format."""
    return exposition(VfCollector(stats), as_openmetrics=False)[1].decode()


def handler(stats: Callable[[], Stats]) -> Handler:
    """Return what answers a scraper: `stats` is called in the event loop's thread, the text is made in another."""

    async def answer(accept: str) -> tuple[str, bytes]:
        return await asyncio.to_thread(exposition, VfCollector(stats()), as_openmetrics=wants_openmetrics(accept))

    return answer
