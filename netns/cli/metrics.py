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
from netns.base.options import HostPort
from netns.cli.commands import LAB_OPTION, lab_named
from netns.errors import BackendError
from netns.lab.lab import Lab
from netns.observe.lab_metrics import lab_metrics
from netns.signals import signals_raise

LOOK_EVERY_S: Final = 1.0
"""How often it is looked whether the lab is still there."""
PATH: Final = "/metrics"


@click.command()
@LAB_OPTION
@click.option(
    "--listen", type=HostPort(example_port=9401), help="Serve them here over HTTP, until the lab is down or Ctrl-C."
)
def metrics(name: str | None, listen: tuple[str, int] | None) -> None:
    """Print the counters of a lab's links, and of its relay, as OpenMetrics; --listen serves them to Prometheus."""
    require_root("srd-lab metrics")
    lab = lab_named(name)
    if listen is None:
        click.echo(lab_metrics(lab, as_openmetrics=True)[1], nl=False)
        return
    with suppress(KeyboardInterrupt), signals_raise():  # Ctrl-C is the usual way to end it
        asyncio.run(_serve(listen, lab))


async def _serve(listen: tuple[str, int], lab: Lab) -> NoReturn:
    """Serve the metrics. Raises LabError when the lab is gone."""

    async def answer(accept: str) -> tuple[str, bytes]:
        return lab_metrics(lab, as_openmetrics=wants_openmetrics(accept))

    server = await HttpServer.listen(listen, routes={PATH: answer}, option="--listen", error=BackendError)
    try:
        click.echo(f"srd-lab: metrics of {lab.name} at http://{host_port_text(*server.address)}{PATH}", err=True)
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            lab.relay_status()
            lab.counters()
    finally:
        await server.close()
