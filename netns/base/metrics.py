"""Metrics as text: in Prometheus' format, or OpenMetrics."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector


def exposition(*collectors: Collector, as_openmetrics: bool) -> tuple[str, bytes]:
    """Return content type and text of what is collected now."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    if as_openmetrics:
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return openmetrics.CONTENT_TYPE_LATEST, text
    return CONTENT_TYPE_LATEST, generate_latest(registry)
