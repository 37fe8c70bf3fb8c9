"""A card's counters for Prometheus.

Names are EFA's with the prefix efa_, as in efa_tx_bytes_total{vf="efa_0"}, ENA's with the prefix ena_, and nitro_ for
what only this card counts. Counters of the device have no prefix of their own: no name is in both of EFA's groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from netns.base.http_server import Handler, wants_openmetrics
from netns.base.metrics import exposition

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
        yield from _of_devices({vf: values for vf, values in vfs.items() if "resources" in values})
        yield from _of_interfaces({vf: values for vf, values in vfs.items() if "ena_state" in values})
        alarms = CounterMetricFamily("nitro_alarms", "Alarms, by kind.", labels=["kind"])
        for kind, count in self._stats.get("alarms", {}).items():
            alarms.add_metric([kind], count)
        yield alarms


def _of_devices(vfs: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield what only virtual functions of kind EFA have."""
    if vfs:
        violations = CounterMetricFamily("efa_qkey_viol", "Messages dropped for a wrong qkey.", labels=["vf"])
        copied = CounterMetricFamily("efa_bytes_copied", "Payload bytes that the card has copied.", labels=["vf"])
        resources = GaugeMetricFamily("efa_resources", "Resources in use, by kind.", labels=["vf", "kind"])
        for vf, values in vfs.items():
            violations.add_metric([vf], values["qkey_viol"])
            copied.add_metric([vf], values["bytes_copied"])
            for kind, count in values["resources"].items():
                resources.add_metric([vf, kind], count)
        yield from (violations, copied, resources)


def _of_interfaces(vfs: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield what only virtual functions of kind ENA Express have."""
    if vfs:
        dropped = CounterMetricFamily("nitro_inner_drops", "The tenant's packets dropped.", labels=["vf", "reason"])
        flows = GaugeMetricFamily("nitro_flows", "Flows tracked for security groups.", labels=["vf"])
        mode = GaugeMetricFamily("ena_srd_mode", "ENA Express: 3 is TCP and UDP.", labels=["vf"])
        used = GaugeMetricFamily("ena_srd_resource_utilization", "Percent of its memory in use.", labels=["vf"])
        for vf, values in vfs.items():
            for reason, count in values["dropped"].items():
                dropped.add_metric([vf, reason], count)
            state = values["ena_state"]
            flows.add_metric([vf], state["flows"])
            mode.add_metric([vf], state["ena_srd_mode"])
            used.add_metric([vf], state["ena_srd_resource_utilization"])
        yield from (dropped, flows, mode, used)


def metrics_text(stats: Stats) -> str:
    """Return the metrics in Prometheus' text format."""
    return exposition(VfCollector(stats), as_openmetrics=False)[1].decode()


def handler(stats: Callable[[], Stats]) -> Handler:
    """Return what answers a scraper: `stats` is called in the event loop's thread, the text is made in another."""

    async def answer(accept: str) -> tuple[str, bytes]:
        return await asyncio.to_thread(exposition, VfCollector(stats()), as_openmetrics=wants_openmetrics(accept))

    return answer
