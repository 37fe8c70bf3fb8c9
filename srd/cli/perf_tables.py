"""`srd perf latency`, `rate`, `write` and `read`: perftest's tables of sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from netns.base.options import Duration, Size
from srd.cli.options import require_one_of, run
from srd.cli.perf_options import (
    ClientSide,
    common_options,
    congestion_option,
    connect_timeout_option,
    host_argument,
    tcp_option,
    verify_option,
)
from srd.cli.security import known_hosts_option
from srd.perf.errors import PerfError
from srd.perf.parameters import MAX_STREAMS, Protocol
from srd.perf.results import describe
from srd.perf.sweep.client import SizeRow, run_sweep
from srd.perf.sweep.plan import ALL_SIZES, ITERATIONS, MAX_BYTES, MAX_ITERATIONS, MAX_SECONDS, Operation, Sweep
from srd.perf.sweep.report import RULE, document, heading
from srd.perf.tcp_socket import CUBIC

Command = Callable[..., Any]


def _with(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Add options, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_sweep_options: Final = _with(
    host_argument,
    click.option(
        "-s", "--size", "sizes", type=Size(least=1, most=MAX_BYTES), multiple=True, help="Only this size; repeatable."
    ),
    click.option("-a", "--all", "all_sizes", is_flag=True, help="Sizes from 2 bytes to 8 MiB, which is the default."),
    click.option(
        "--iters",
        "iterations",
        type=click.IntRange(1, MAX_ITERATIONS),
        help=f"Iterations of each size.  [default: {ITERATIONS}]",
    ),
    click.option("-t", "--time", "seconds", type=Duration(most_s=MAX_SECONDS), help="How long for each size, instead."),
)
_peers_option: Final = click.option(
    "-P",
    "--parallel",
    "peers",
    type=click.IntRange(1, MAX_STREAMS),
    default=1,
    show_default=True,
    help="Peers of the same two endpoints, as perftest's queue pairs; they share the iterations.",
)
_tcp_options: Final = _with(tcp_option, congestion_option)
_last_options: Final = _with(verify_option, common_options, connect_timeout_option, known_hosts_option)


@click.command()
@_sweep_options
@_tcp_options
@_last_options
def latency(**given: Any) -> int:
    """Measure round trips of messages to an `srd perf server` at HOST, one at a time, as ib_send_lat does.

    The times are half of each round trip. The first 200 of each size, at most a quarter of the time, do not count.
    --tcp: the same over blocking sockets with TCP_NODELAY. --verify: at the server 64 KiB of each message, in turn.
    """
    return _run(Operation.LATENCY, given)


@click.command()
@_sweep_options
@_peers_option
@_tcp_options
@_last_options
def rate(**given: Any) -> int:
    """Measure bandwidth and rate of messages to an `srd perf server` at HOST, as ib_send_bw does.

    From the first message to the last completion; MB are 2^20 bytes. --tcp: a write for each message, until the server
    has read all.
    """
    return _run(Operation.RATE, given)


@click.command()
@_sweep_options
@_peers_option
@_last_options
def write(**given: Any) -> int:
    """Measure RDMA writes to memory of an `srd perf server` at HOST, as ib_write_bw does.

    --verify: the server compares all that was written; the clock stops meanwhile.
    """
    return _run(Operation.WRITE, given)


@click.command()
@_sweep_options
@_peers_option
@_last_options
def read(**given: Any) -> int:
    """Measure RDMA reads from memory of an `srd perf server` at HOST, as ib_read_bw does.

    --verify: all that was read is compared; the clock stops meanwhile.
    """
    return _run(Operation.READ, given)


def _run(operation: Operation, given: dict[str, Any]) -> int:
    side = ClientSide.of(given)
    return run(_measure(side, _sweep(operation, **given)))


def _sweep(
    operation: Operation,
    *,
    sizes: Sequence[int],
    all_sizes: bool,
    iterations: int | None,
    seconds: float | None,
    verify: bool,
    peers: int = 1,
    tcp: bool = False,
    congestion: str | None = None,
) -> Sweep:
    """Return what is to be measured. Raises click.UsageError."""
    require_one_of({"--size": sizes, "--all": all_sizes})
    require_one_of({"--iters": iterations is not None, "--time": seconds is not None})
    if congestion is not None and not tcp:
        raise click.UsageError("--congestion is of TCP; give --tcp, too")
    sweep = Sweep(
        operation,
        Protocol.TCP if tcp else Protocol.SRD,
        (congestion or CUBIC) if tcp else "",
        tuple(sizes) or ALL_SIZES,
        iterations=0 if seconds is not None else iterations or ITERATIONS,
        seconds=seconds or 0.0,
        peers=peers,
        verify=verify,
    )
    try:
        sweep.check()
    except PerfError as error:
        raise click.UsageError(str(error)) from error
    return sweep


async def _measure(side: ClientSide, sweep: Sweep) -> int:
    address = (side.target.host, side.target.port)
    rows, cookies, at, as_json = list[SizeRow](), list[str](), time.time(), side.common.as_json
    with side.common.output() as write:

        def show(row: SizeRow) -> None:
            rows.append(row)
            if not as_json:
                write(row.figures.row + "\n")

        def start(cookie: str) -> None:
            cookies.append(cookie)
            if not as_json:
                write(heading(sweep, address))

        async with side.client(write) as client:
            await run_sweep(client, sweep, on_start=start, on_row=show)
        if as_json:
            write(describe(document(sweep, rows, target=address, cookie=cookies[0], at=at)) + "\n")
        else:
            write(RULE + "\n")
    return 0
