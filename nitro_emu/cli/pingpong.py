"""`efa-pingpong`: the time that a message takes, as rdma-core's ibv_*_pingpong and perftest's ib_*_lat measure it."""

from __future__ import annotations

from typing import Any

import click

from netns.base.program import ProgramCommand
from nitro_emu.cli.perf_options import PerfOptions, measure, perf_options
from nitro_emu.command import STATUSES
from nitro_emu.perf.plan import Tool
from srd.perf.figures import LATENCY_HEAD


@click.command("efa-pingpong", cls=ProgramCommand, statuses=STATUSES)
@perf_options("send")
@click.version_option(package_name="open-srd", prog_name="efa-pingpong")
def pingpong(**options: Any) -> None:
    """Measure round trips between two devices, and print a table of perftest's form.

    Without HOST it is the server, which answers one client and does what that asks for. With HOST it is the client.

    Times are half of a round trip, in microseconds; those of READs are all of it. A WRITE has an immediate.
    """
    given = PerfOptions(**options)
    measure(Tool.LATENCY, given, title=f"{given.operation.capitalize()} Latency Test", head=LATENCY_HEAD)


if __name__ == "__main__":
    pingpong()
