"""`--metrics` of the daemons, `srd metrics`, which prints those of a running one."""

from __future__ import annotations

import http.client
from typing import Final

import click

from netns.base.addresses import host_port_text
from netns.base.metrics import check_forms, metrics_options, show_metrics
from netns.base.printable import printable
from srd.cli.options import METRICS_ADDRESS, metrics_argument
from srd.errors import SrdError
from srd.metrics.serving import METRICS, OPTION

MAX_ANSWER_BYTES: Final = 16 << 20
TIMEOUT_S: Final = 10.0

metrics_option: Final = click.option(
    OPTION,
    "metrics",
    type=METRICS_ADDRESS,
    help="Serve metrics (OpenMetrics, Prometheus) over HTTP here, unencrypted, and what srd top shows.",
)


class UnreachableError(SrdError):
    """Nothing answers there any more."""


def ask(address: tuple[str, int], path: str) -> str:
    """Return what a daemon's metrics address has at `path`.

    Raises UnreachableError if nobody listens, SrdError otherwise.
    """
    host, port = address
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    name = host_port_text(host, port)
    try:
        connection.request("GET", path, headers={"Accept": "application/openmetrics-text"})
        answer = connection.getresponse()
        body = answer.read(MAX_ANSWER_BYTES + 1)
    except (ConnectionRefusedError, ConnectionResetError, http.client.RemoteDisconnected) as error:
        raise UnreachableError(f"{name}: nothing serves metrics there; start it with {OPTION} {name}") from error
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or printable(error) or type(error).__name__
        raise SrdError(f"{name}: cannot be read: {why}") from error
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise SrdError(f"{name}: answers {answer.status} to {path}; is it the {OPTION} address of srd?")
    if len(body) > MAX_ANSWER_BYTES:
        raise SrdError(f"{name}: answers more than {MAX_ANSWER_BYTES >> 20} MiB to {path}; read it with another tool")
    return body.decode(errors="replace")


@click.command()
@metrics_argument
@metrics_options
def metrics(*, address: tuple[str, int], as_json: bool, prometheus: bool) -> int:
    """Show the metrics of a running srd once, which its --metrics HOST[:PORT] gives to a scraper.

    Counters have the names of EFA's driver where it has them, with the prefix srd_; the first 64 open peers have series
    of their own.
    """
    check_forms(as_json=as_json, prometheus=prometheus)
    text = ask(address, METRICS)
    try:
        show_metrics(text, as_json=as_json, prometheus=prometheus)
    except ValueError as error:
        raise SrdError(f"{host_port_text(*address)}: answers no OpenMetrics ({printable(error)})") from error
    return 0
