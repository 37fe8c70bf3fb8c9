"""`efa-pingpong`: the time that a message takes, as rdma-core's ibv_*_pingpong and perftest's ib_*_lat measure it."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from nitro_emu.cli.failures import run_program
from nitro_emu.cli.perf_options import PerfOptions, measure, perf_options
from nitro_emu.perf.plan import Tool
from srd.perf.figures import LATENCY_HEAD


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@perf_options("send")
@click.version_option(package_name="open-srd", prog_name="efa-pingpong")
def pingpong(**options: Any) -> None:
    """Measure round trips between two devices, and print a table of perftest's form.

    Without HOST it is the server, which answers one client and does what that asks for. With HOST it is the client.

    Times are half of a round trip, in microseconds; those of READs are all of it. A WRITE has an immediate.
    """
    given = PerfOptions(**options)
    measure(Tool.LATENCY, given, title=f"{given.operation.capitalize()} Latency Test", head=LATENCY_HEAD)


def main() -> NoReturn:
    """Run the command line; the entry point of the console script."""
    run_program(pingpong, name="efa-pingpong")


if __name__ == "__main__":
    main()
