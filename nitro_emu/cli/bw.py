"""`efa-bw`: how much a pair of devices carries, as perftest's ib_send_bw, ib_write_bw and ib_read_bw measure it."""

from __future__ import annotations

from typing import Any

import click

from netns.base.program import ProgramCommand
from nitro_emu.cli.perf_options import PerfOptions, depth_option, measure, perf_options
from nitro_emu.command import STATUSES
from nitro_emu.perf.plan import Tool
from srd.perf.figures import BANDWIDTH_HEAD

TX_DEPTH = 128
"""perftest's."""


@click.command("efa-bw", cls=ProgramCommand, statuses=STATUSES)
@perf_options("write")
@depth_option(TX_DEPTH)
@click.version_option(package_name="open-srd", prog_name="efa-bw")
def bw(**options: Any) -> None:
    """Measure the bandwidth from the client to the server, and print a table of perftest's form.

    Without HOST it is the server, which serves one client and does what that asks for. With HOST it is the client.

    A MB has 2^20 bytes, as with perftest. READs carry payload from the server to the client.
    """
    given = PerfOptions(**options)
    measure(Tool.BANDWIDTH, given, title=f"{given.operation.capitalize()} BW Test", head=BANDWIDTH_HEAD)


if __name__ == "__main__":
    bw()
