"""`srd perf server` and `srd perf client`: iperf3's flags and output, for SRD, TCP and MPTCP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from netns.base.addresses import host_port_text, reached_at
from netns.base.options import Duration, Rate, Size
from netns.base.program import CommandGroup
from srd.cli.options import require_one_of, run
from srd.cli.perf_options import (
    PORT,
    ClientSide,
    PerfOptions,
    common_options,
    congestion_option,
    connect_timeout_option,
    host_argument,
    interval_option,
    note,
    tcp_option,
    verify_option,
)
from srd.cli.perf_tables import latency, rate, read, write
from srd.cli.security import authorized_keys_option, known_hosts_option
from srd.config import EndpointConfig
from srd.listening import listen_at
from srd.perf.errors import PerfError
from srd.perf.iperf_json import document
from srd.perf.meter import Interval
from srd.perf.opening import listen
from srd.perf.parameters import (
    MAX_OMIT_S,
    MAX_PACED_BLOCK_S,
    MAX_RATE_BPS,
    MAX_SECONDS,
    MAX_SRD_BLOCK_BYTES,
    MAX_STREAMS,
    MAX_TOTAL_BYTES,
    Direction,
    Parameters,
    Protocol,
    default_block_bytes,
)
from srd.perf.results import PerfReport, Start, describe
from srd.perf.server import PerfServer
from srd.perf.tcp_socket import CUBIC
from srd.perf.text import RULE, TextReport

INTERRUPTED: Final = "interrupt - the client has terminated"
SECONDS: Final = 10.0
"""iperf3's."""


@click.group(cls=CommandGroup)
def perf() -> None:
    """Measure between two machines: throughput as iperf3 does, latency and message rate as perftest does.

    SRD, TCP and MPTCP over the same addresses, to an `srd perf server` at the other machine.
    """


for _table in (latency, rate, write, read):
    perf.add_command(_table)


# -- the server ---------------------------------------------------------------------------------------------------


@perf.command()
@common_options
@interval_option
@click.option("-1", "--one-off", is_flag=True, help="Serve one test, and exit.")
@authorized_keys_option
def server(*, one_off: bool, authorized_keys: Path | None, interval_s: float, **common: Any) -> int:
    """Serve tests, one at a time, until stopped.

    Prints what to test with: the fingerprint of its key follows # in the target. UDP must reach the port, and TCP for
    tests of TCP. Everything but the data of TCP is encrypted.
    """
    options = PerfOptions(**common)
    options.check_trace()
    config = options.config(options.security(authorized_keys=authorized_keys))
    return run(_serve(options, config, one_off=one_off, interval_s=interval_s), is_daemon=not one_off)


async def _serve(options: PerfOptions, config: EndpointConfig, *, one_off: bool, interval_s: float) -> int:
    with options.output() as write, options.tracing(title="srd perf server", vantage_point="server") as trace:
        opened = partial(listen, port=options.port, config=config, trace=trace)
        async with (
            await listen_at(options.bind, opened) as endpoint,
            options.serving(endpoint, title="srd perf server"),
        ):
            host, port = endpoint.address
            code = endpoint.identity.fingerprint
            reached = reached_at(host)
            at = (f"[{reached}]" if ":" in reached else reached) if port == PORT else host_port_text(reached, port)
            target = f"{at}{'#' * bool(code)}{code}"
            listening = f"Server listening on {host_port_text(host, port)}"
            if options.as_json:
                note(listening)
            else:
                write(f"{RULE}\n{listening}\n{RULE}\n")
            note(f"test with: srd perf client {target}")
            tests = PerfServer(endpoint, write=write, note=note, as_json=options.as_json, interval_s=interval_s)
            return await tests.serve(one_off=one_off)


# -- the client ---------------------------------------------------------------------------------------------------


@perf.command()
@host_argument
@common_options
@interval_option
@click.option("-t", "--time", "seconds", type=Duration(most_s=MAX_SECONDS), help="How long.  [default: 10]")
@click.option("-n", "--bytes", "size_bytes", type=Size(least=1, most=MAX_TOTAL_BYTES), help="How much, instead.")
@click.option(
    "-O",
    "--omit",
    "omit_s",
    type=Duration(most_s=MAX_OMIT_S),
    default="0",
    help="Time before -t to ignore.",
)
@click.option(
    "-b",
    "--bitrate",
    "rate_bps",
    type=Rate(most_bps=MAX_RATE_BPS),
    default="0",
    help="Limit of each stream, such as 250M.",
)
@click.option(
    "-l",
    "--length",
    "block_bytes",
    type=Size(least=1, most=MAX_SRD_BLOCK_BYTES),
    help="Length of a message (SRD), or of a write (TCP).  [default: 1M; TCP: 128K; with -b what takes 50 ms]",
)
@click.option(
    "-P",
    "--parallel",
    "streams",
    type=click.IntRange(1, MAX_STREAMS),
    default=1,
    help="Number of streams: of SRD a peer each, all of one endpoint; of TCP a connection each.",
)
@click.option("-R", "--reverse", is_flag=True, help="The server sends.")
@click.option("--bidir", is_flag=True, help="Both send, over streams of their own.")
@tcp_option
@click.option("-m", "--mptcp", is_flag=True, help="Measure MPTCP.")
@congestion_option
@verify_option
@click.option("--get-server-output", "server_output", is_flag=True, help="Show what the server printed, too.")
@connect_timeout_option
@known_hosts_option
def client(*, interval_s: float, **given: Any) -> int:
    """Measure to an `srd perf server` at HOST, as iperf3 -c does.

    The lines are iperf3's, with the smoothed round trip and the number of paths used.
    """
    side = ClientSide.of(given)
    return run(_measure(side, ClientOptions(**given), interval_s=interval_s))


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options of a client only."""

    seconds: float | None
    size_bytes: int | None
    omit_s: float
    rate_bps: int
    block_bytes: int | None
    streams: int
    reverse: bool
    bidir: bool
    tcp: bool
    mptcp: bool
    congestion: str | None
    verify: bool
    server_output: bool

    def __post_init__(self) -> None:
        """Raise click.UsageError for options that exclude each other."""
        self.parameters()

    def parameters(self) -> Parameters:
        """Return the test. Raises click.UsageError."""
        require_one_of({"--time": self.seconds is not None, "--bytes": self.size_bytes is not None})
        require_one_of({"--reverse": self.reverse, "--bidir": self.bidir})
        require_one_of({"--tcp": self.tcp, "--mptcp": self.mptcp})
        is_tcp = self.tcp or self.mptcp
        if self.congestion is not None and not is_tcp:
            raise click.UsageError("--congestion is of TCP; give --tcp or --mptcp, too")
        if self.seconds == 0:
            raise click.UsageError("--time 0: a test ends; give --bytes for one without a time")
        longest_bytes = int(self.rate_bps / 8 * MAX_PACED_BLOCK_S)
        if self.rate_bps and self.block_bytes is not None and self.block_bytes > max(longest_bytes, 1):
            raise click.UsageError(
                f"--length {self.block_bytes}: takes {8 * self.block_bytes / self.rate_bps:.3g} s at --bitrate "
                f"{self.rate_bps}, which cannot be kept; give at most {max(longest_bytes, 1)}, or leave it out"
            )
        protocol = Protocol.MPTCP if self.mptcp else Protocol.TCP if self.tcp else Protocol.SRD
        parameters = Parameters(
            protocol,
            congestion=(self.congestion or CUBIC) if is_tcp else "",
            seconds=0.0 if self.size_bytes else SECONDS if self.seconds is None else self.seconds,
            size_bytes=self.size_bytes or 0,
            omit_s=self.omit_s,
            streams=self.streams,
            block_bytes=self.block_bytes or default_block_bytes(protocol, rate_bps=self.rate_bps),
            rate_bps=self.rate_bps,
            direction=Direction.REVERSE if self.reverse else Direction.BOTH if self.bidir else Direction.FORWARD,
            verify=self.verify,
            server_output=self.server_output,
        )
        try:
            parameters.check()
        except PerfError as error:
            raise click.UsageError(str(error)) from error
        return parameters


class Documents:
    """A watch for JSON, which is printed at the end."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def started(self, start: Start) -> None:
        """Print nothing."""

    def interval(self, interval: Interval) -> None:
        """Print nothing."""

    def interrupted(self, report: PerfReport) -> None:
        """Print what is known, with iperf3's words for why it is not all."""
        self._write(describe({**document(report), "error": INTERRUPTED}) + "\n")


async def _measure(side: ClientSide, test: ClientOptions, *, interval_s: float) -> int:
    as_json = side.common.as_json
    with side.common.output() as write:
        text = TextReport(lambda line: write(line + "\n"))
        async with side.client(write) as tests:
            watch = Documents(write) if as_json else text
            report = await tests.run(test.parameters(), interval_s=interval_s, watch=watch)
        if as_json:
            write(describe(document(report)) + "\n")
        else:
            text.ended(report)
            _write_server_output(report, write)
    return 0


def _write_server_output(report: PerfReport, write: Callable[[str], None]) -> None:
    output = report.other.output if report.other else None
    if output is not None:
        write("Server output:\n" + (output if isinstance(output, str) else describe(output) + "\n"))
    write("srd perf done.\n")
