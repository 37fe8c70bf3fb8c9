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
from nitro_emu.ebs.statistics import BOUNDS_US

_LABELS: Final = ("volume", "command")


class VolumeCollector(Collector):
    """Makes metrics of what `Attachment.status` returns."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        volume, requests = self._status["name"], self._status["requests"]
        for key, text in (
            ("operations", "Requests that were carried out."),
            ("bytes", "Bytes of the requests that were carried out."),
            ("errors", "Requests that failed."),
        ):
            family = CounterMetricFamily(f"ebs_{key}", text, labels=_LABELS)
            for command, done in requests.items():
                family.add_metric([volume, command], done[key])
            yield family
        latency = HistogramMetricFamily("ebs_latency_seconds", "From a request's arrival to its end.", labels=_LABELS)
        bounds = [*(str(bound_us / 1e6) for bound_us in BOUNDS_US), "+Inf"]
        for command, done in requests.items():
            buckets = list(zip(bounds, accumulate(done["latency_counts"]), strict=True))
            latency.add_metric([volume, command], buckets, done["latency_sum_us"] / 1e6)
        yield latency
        for name, us in self._status["exceeded_us"].items():
            text = "How long the demand was above the volume's limit."
            exceeded = CounterMetricFamily(f"ebs_{name}_seconds", text, labels=_LABELS[:1])
            exceeded.add_metric([volume], us / 1e6)
            yield exceeded
        for key, text in (("queue_length", "Requests that are not done."), ("clients", "NBD clients connected.")):
            gauge = GaugeMetricFamily(f"ebs_{key}", text, labels=_LABELS[:1])
            gauge.add_metric([volume], self._status[key])
            yield gauge


def handler(status: Callable[[], Mapping[str, Any]]) -> Handler:
    """Return what answers a scraper."""

    async def answer(accept: str) -> tuple[str, bytes]:
        return exposition(VolumeCollector(status()), as_openmetrics=wants_openmetrics(accept))

    return answer
