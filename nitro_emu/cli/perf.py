"""`efa-pingpong` and `efa-bw`: latency and bandwidth of a pair of devices, as perftest measures them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from netns.base.addresses import host_port_text
from netns.base.options import HostPort, Size, json_option, with_options
from netns.base.output import print_json
from netns.base.program import ProgramCommand, version_option
from netns.base.tables import count
from nitro_emu.cli.options import run_dir_option
from nitro_emu.command import STATUSES
from nitro_emu.efa.perf.carrier import Verb, operation_of
from nitro_emu.efa.perf.end import QueuePairEnd
from nitro_emu.efa.perf.session import DEFAULT_PORT, run_client, run_server
from nitro_emu.efa.verbs import Context, device_names
from nitro_emu.gid import gid_text
from nitro_emu.run_directory import remedy
from srd.perf.errors import PerfError
from srd.perf.figures import BANDWIDTH_HEAD, LATENCY_HEAD
from srd.perf.sweep.client import SizeRow
from srd.perf.sweep.plan import ALL_SIZES, ITERATIONS, MAX_BYTES, MAX_DEPTH, MAX_ITERATIONS, Sweep
from srd.perf.sweep.report import RULE, document

LATENCY_BYTES: Final = 64
BANDWIDTH_BYTES: Final = {Verb.SEND: 1024, Verb.WRITE: 65536, Verb.READ: 65536}
"""A SEND fits into a packet on any network."""
TX_DEPTH: Final = 128
"""perftest's."""

Command = Callable[..., Any]


def _options(default: Verb) -> Callable[[Command], Command]:
    """Add the options, and the argument TARGET, HOST[:PORT]."""
    number, sizes = click.IntRange, Size(least=1, most=MAX_BYTES)
    size_help = "Bytes, as 4096 or 64K; by default 64 for latency, 64 KiB for bandwidth, of SENDs 1 KiB."
    return with_options(
        click.argument("target", type=HostPort(default_port=0, example_port=DEFAULT_PORT), required=False),
        click.option("-p", "--port", type=number(0, 65535), default=DEFAULT_PORT, show_default=True, help="TCP port."),
        click.option("-B", "--bind", metavar="HOST", help="The server's local address.  [default: all]"),
        click.option("-d", "--device", help="The device; by default the first one of the card."),
        run_dir_option,
        *(_verb_option(verb, default=default) for verb in Verb),
        click.option("-s", "--size", type=sizes, help=size_help),
        click.option(
            "--iters",
            type=number(1, MAX_ITERATIONS),
            default=ITERATIONS,
            help=f"Messages.  [default: {ITERATIONS}]",
        ),
        click.option("-a", "--all", "all_sizes", is_flag=True, help="Sizes from 2 bytes to 8 MiB, SENDs to the MTU."),
        click.option("--events", is_flag=True, help="Sleep until a completion comes, instead of polling."),
        click.option("--verify", is_flag=True, help="Compare every payload; takes time of its own."),
        json_option,
    )


def _verb_option(verb: Verb, *, default: Verb) -> Callable[[Command], Command]:
    help_text = f"Measure {verb.upper()}s" + ("; the default." if verb is default else ".")
    return click.option(f"--{verb}", "verb", flag_value=verb.value, default=default.value, help=help_text)


@click.command("efa-pingpong", cls=ProgramCommand, statuses=STATUSES)
@_options(Verb.SEND)
@version_option("efa-pingpong")
def pingpong(**given: Any) -> None:
    """Measure round trips between two devices, and print a table of perftest's form.

    Without TARGET it is the server, which answers one client and does what that asks for. With TARGET it is the client.

    Times are half of a round trip, in microseconds; those of READs are all of it. A WRITE has an immediate. The first
    200 round trips of each size do not count.
    """
    _measure(latency=True, **given)


@click.command("efa-bw", cls=ProgramCommand, statuses=STATUSES)
@_options(Verb.WRITE)
@click.option(
    "--tx-depth",
    "depth",
    type=click.IntRange(1, MAX_DEPTH),
    default=TX_DEPTH,
    show_default=True,
    help="Requests at a time, of up to 16 MiB together.",
)
@version_option("efa-bw")
def bw(**given: Any) -> None:
    """Measure the bandwidth from the client to the server, and print a table of perftest's form.

    Without TARGET it is the server, which serves one client and does what that asks for. With TARGET it is the client.

    A MB has 2^20 bytes, as with perftest. READs carry payload from the server to the client.
    """
    _measure(latency=False, **given)


def _measure(
    *,
    latency: bool,
    target: tuple[str, int] | None,
    port: int,
    bind: str | None,
    device: str | None,
    run_dir: Path,
    size: int | None,
    iters: int,
    all_sizes: bool,
    events: bool,
    verify: bool,
    as_json: bool,
    verb: str,
    depth: int = 0,
) -> None:
    """Run one end, and print the table at the client. Raises NitroError, SrdError, click.UsageError."""
    name = _device(device, run_dir=run_dir)
    opened = partial(QueuePairEnd, device=name, run_dir=run_dir, events=events)
    if target is None:
        Context(name, directory=run_dir).close()  # what cannot be opened waits for nobody
        serving = run_server(
            (bind or "", port), latency=latency, opened=opened, on_listening=_print_listening, on_start=_print_addresses
        )
        sweep, served, counts = asyncio.run(serving)
        checked = ", every payload compared" if sweep.verify else ""
        if as_json:
            print_json({"sizes": len(counts), "iterations": sweep.iterations, "verb": served, "verify": sweep.verify})
        else:
            click.echo(f"{count(counts, 'size')} of {sweep.iterations} {served.upper()}s{checked}")
        return
    host, own_port = target
    if own_port and port not in {own_port, DEFAULT_PORT}:
        raise click.UsageError(f"{host_port_text(host, own_port)} and --port {port}: give one of the two ports")
    reached = (host, own_port or port)
    wanted = Verb(verb)
    least = LATENCY_BYTES if latency else BANDWIDTH_BYTES[wanted]
    sizes = ALL_SIZES if all_sizes else (size or least,)
    sweep = Sweep(operation_of(wanted, latency=latency), sizes=sizes, iterations=iters, verify=verify, tx_depth=depth)

    rows, at = list[SizeRow](), time.time()

    def show(row: SizeRow) -> None:
        rows.append(row)
        if not as_json:
            click.echo(row.figures.row)

    def start(end: QueuePairEnd) -> None:
        if not as_json:
            click.echo(f"{RULE}\n                    {verb.capitalize()} {'Latency' if latency else 'BW'} Test")
            _print_addresses(end)
            click.echo(f"{RULE}\n{LATENCY_HEAD if latency else BANDWIDTH_HEAD}")

    asyncio.run(run_client(reached, sweep, wanted, opened=opened, on_start=start, on_row=show))
    if as_json:
        print_json(document(sweep, rows, target=reached, cookie="", at=at))
    else:
        click.echo(RULE)


def _device(name: str | None, *, run_dir: Path) -> str:
    """Return a device's name, by default the first one's. Raises PerfError: there is none."""
    if name is not None:
        return name
    if names := device_names(run_dir):
        return names[0]
    raise PerfError(f"{run_dir}: no device there; {remedy(run_dir, option='--run-dir')}")


def _print_listening(port: int) -> None:
    click.echo(f"waiting for a client at TCP port {port}")


def _print_addresses(end: QueuePairEnd) -> None:
    for name, address in (("local", end.address), ("remote", end.remote)):
        click.echo(f" {name:6} address: GID {gid_text(address.gid)} QPN {address.qpn:#06x} RKey {address.rkey:#08x}")
