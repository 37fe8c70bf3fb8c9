"""Metrics as text: in Prometheus' format, or OpenMetrics; and how commands named `metrics` show such a text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from netns.base.options import json_option
from netns.base.output import print_json
from netns.base.printable import printable
from netns.base.tables import print_table, table

_F = TypeVar("_F", bound=Callable[..., Any])
_prometheus_option: Final = click.option(
    "--prometheus", is_flag=True, help="Print them as a scraper gets them, in Prometheus' format or OpenMetrics."
)


def exposition(*collectors: Collector, as_openmetrics: bool) -> tuple[str, bytes]:
    """Return content type and text of what is collected now."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    if as_openmetrics:
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return openmetrics.CONTENT_TYPE_LATEST, text
    return CONTENT_TYPE_LATEST, generate_latest(registry)


def metrics_options(command: _F) -> _F:
    """Add what all commands `metrics` have."""
    return json_option(_prometheus_option(command))


def check_forms(*, as_json: bool, prometheus: bool) -> None:
    """Raise click.UsageError for both forms."""
    if as_json and prometheus:
        raise click.UsageError("--json and --prometheus exclude each other; give one of them")


def show_metrics(text: str, *, as_json: bool, prometheus: bool) -> None:
    """Print metrics in OpenMetrics: as a table, as a document, or as they are. Raises ValueError for another text."""
    check_forms(as_json=as_json, prometheus=prometheus)
    if prometheus:
        click.echo(text, nl=False)
    elif as_json:
        rows = [{"name": each.name, "labels": each.labels, "value": each.value} for each in _samples(text)]
        print_json({"metrics": rows})
    else:
        made = table("metric", "labels", "value", text=("labels",))
        for each in _samples(text):
            labels = " ".join(f"{name}={value}" for name, value in each.labels.items())
            made.add_row(printable(each.name), printable(labels), f"{each.value:.15g}")
        print_table(made)


def _samples(text: str) -> Iterator[Sample]:
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        yield from family.samples
