"""`srd-lab metrics`: a lab's counters for Prometheus, printed once or served.

They are served by this process and not by the relay, whose turns must not wait for a scraper.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, NoReturn

import click

from netns.backends.choice import require_root
from netns.base.addresses import host_port_text
from netns.base.http_server import HttpServer, wants_openmetrics
from netns.base.metrics import check_forms, metrics_options, show_metrics
from netns.cli.commands import LAB_OPTION, lab_named
from netns.errors import BackendError
from netns.lab.lab import Lab
from netns.observe.lab_metrics import lab_metrics
from netns.signals import signals_raise

LOOK_EVERY_S: Final = 1.0
"""How often it is looked whether the lab is still there."""
PATH: Final = "/metrics"
PORT: Final = 9471


@click.command()
@LAB_OPTION
@metrics_options
@click.option("--serve", is_flag=True, help="Serve them over HTTP to Prometheus, until the lab is down or a signal.")
@click.option(
    "-p", "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Where, with --serve."
)
@click.option("-B", "--bind", metavar="HOST", default="127.0.0.1", show_default=True, help="Where, with --serve.")
def metrics(*, name: str | None, as_json: bool, prometheus: bool, serve: bool, port: int, bind: str) -> None:
    """Show the counters of a lab's links, and of its relay, or serve them."""
    check_forms(as_json=as_json, prometheus=prometheus)
    require_root("srd-lab metrics")
    lab = lab_named(name)
    if not serve:
        show_metrics(lab_metrics(lab, as_openmetrics=True)[1].decode(), as_json=as_json, prometheus=prometheus)
        return
    with suppress(KeyboardInterrupt, SystemExit), signals_raise():  # a signal is the usual way to end it
        asyncio.run(_serve((bind, port), lab))


async def _serve(listen: tuple[str, int], lab: Lab) -> NoReturn:
    """Serve the metrics. Raises LabError when the lab is gone."""

    async def answer(accept: str) -> tuple[str, bytes]:
        return lab_metrics(lab, as_openmetrics=wants_openmetrics(accept))

    server = await HttpServer.listen(listen, routes={PATH: answer}, option="--bind, --port:", error=BackendError)
    try:
        click.echo(f"srd-lab: metrics of {lab.name} at http://{host_port_text(*server.address)}{PATH}", err=True)
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            lab.relay_status()
            lab.counters()
    finally:
        await server.close()
