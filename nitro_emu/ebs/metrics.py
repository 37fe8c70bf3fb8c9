"""A volume's counters for Prometheus: AWS's "detailed performance statistics", with the prefix ebs_.

ebs_operations_total{volume="vol-1",command="read"}, ebs_latency_seconds_bucket{...,le="0.001024"}, and for how long the
demand was above what the volume is provisioned for: ebs_performance_exceeded_iops_seconds_total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from netns.base.http_server import Handler, wants_openmetrics
from netns.base.metrics import exposition
from nitro_emu.ebs.limits import EXCEEDED
from nitro_emu.ebs.statistics import BOUNDS_US

_LABELS: Final = ("volume", "command")


class VolumeCollector(Collector):
    """Makes metrics of what volumes of a process have done."""

    def __init__(self, volumes: Mapping[str, Mapping[str, Any]]) -> None:
        """`volumes`: `Attachment.counters` of each, by its name."""
        self._volumes = volumes

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        for key, text in (
            ("operations", "Requests that were carried out."),
            ("bytes", "Bytes of the requests that were carried out."),
            ("errors", "Requests that failed."),
        ):
            family = CounterMetricFamily(f"ebs_{key}", text, labels=_LABELS)
            for labels, done in self._requests():
                family.add_metric(labels, done[key])
            yield family
        latency = HistogramMetricFamily("ebs_latency_seconds", "From a request's arrival to its end.", labels=_LABELS)
        bounds = [*(str(bound_us / 1e6) for bound_us in BOUNDS_US), "+Inf"]
        for labels, done in self._requests():
            buckets = list(zip(bounds, accumulate(done["latency_counts"]), strict=True))
            latency.add_metric(labels, buckets, done["latency_sum_us"] / 1e6)
        yield latency
        for limit in EXCEEDED:
            text = "How long the demand was above the volume's limit."
            exceeded = CounterMetricFamily(f"ebs_{limit}_seconds", text, labels=_LABELS[:1])
            for volume, values in self._volumes.items():
                exceeded.add_metric([volume], values["exceeded_us"][limit] / 1e6)
            yield exceeded
        for key, text in (("queue_length", "Requests that are not done."), ("clients", "NBD clients connected.")):
            gauge = GaugeMetricFamily(f"ebs_{key}", text, labels=_LABELS[:1])
            for volume, values in self._volumes.items():
                gauge.add_metric([volume], values[key])
            yield gauge

    def _requests(self) -> Iterator[tuple[list[str], Mapping[str, Any]]]:
        """Yield labels and counters of the requests of each kind."""
        for volume, values in self._volumes.items():
            for command, done in values["requests"].items():
                yield [volume, command], done


def handler(name: str, counters: Callable[[], Mapping[str, Any]]) -> Handler:
    """Return what answers a scraper: the counters of one volume."""

    async def answer(accept: str) -> tuple[str, bytes]:
        return exposition(VolumeCollector({name: counters()}), as_openmetrics=wants_openmetrics(accept))

    return answer
