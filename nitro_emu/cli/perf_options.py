"""What `efa-pingpong` and `efa-bw` have in common: options, and how the two ends start and print."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from netns.base.options import Size
from nitro_emu.abi.gid import gid_text
from nitro_emu.cli.options import run_dir_option
from nitro_emu.perf.endpoint import check_device
from nitro_emu.perf.exchange import DEFAULT_PORT, Exchange
from nitro_emu.perf.plan import MAX_BYTES, MAX_DEPTH, MAX_ITERATIONS, MAX_SEND_BYTES, Address, Operation, Plan, Tool
from nitro_emu.perf.session import run_client, run_server

_F = TypeVar("_F", bound=Callable[..., Any])

DEFAULT_SIZES: Final = {
    (Tool.LATENCY, Operation.SEND): 64,
    (Tool.LATENCY, Operation.WRITE): 64,
    (Tool.LATENCY, Operation.READ): 64,
    (Tool.BANDWIDTH, Operation.SEND): 1024,
    (Tool.BANDWIDTH, Operation.WRITE): 65536,
    (Tool.BANDWIDTH, Operation.READ): 65536,
}
"""Bytes. A SEND fits into a packet on any network."""

RULE: Final = "-" * 150


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfOptions:
    """The options of both ends."""

    host: str | None
    """The server; None: this is the server."""
    port: int
    device: str | None
    run_dir: Path
    size: int | None
    iters: int
    all_sizes: bool
    events: bool
    check: bool
    as_json: bool
    operation: str
    depth: int = 1

    def plan(self, tool: Tool) -> Plan:
        """Return what is to be measured."""
        operation = Operation(self.operation)
        most = MAX_SEND_BYTES if operation == Operation.SEND else MAX_BYTES
        sizes = [1 << shift for shift in range(1, most.bit_length())] if self.all_sizes else []
        sizes = sizes or [self.size or DEFAULT_SIZES[tool, operation]]
        return Plan(tool, operation, sizes, iterations=self.iters, depth=self.depth, check=self.check)


def perf_options(default_operation: str) -> Callable[[_F], _F]:
    """Add the options, and the argument HOST."""

    def add(command: _F) -> _F:
        for option in reversed(_options(default_operation)):
            command = option(command)
        return command

    return add


def _options(default_operation: str) -> list[Callable[[_F], _F]]:
    number = click.IntRange
    return [
        click.argument("host", required=False),
        click.option("-p", "--port", type=number(0, 65535), default=DEFAULT_PORT, show_default=True, help="TCP port."),
        click.option("-d", "--device", help="The device; by default the first one of the card."),
        run_dir_option,
        *(
            click.option(
                f"--{operation}",
                "operation",
                flag_value=operation.value,
                default=default_operation,
                help=f"Measure {operation.upper()}s" + ("; the default." if operation == default_operation else "."),
            )
            for operation in Operation
        ),
        click.option(
            "-s",
            "--size",
            type=Size(least=1, most=MAX_BYTES),
            help="Bytes, as 4096 or 64K; by default 64 for latency, 64 KiB for bandwidth, of SENDs 1 KiB.",
        ),
        click.option(
            "-n", "--iters", type=number(1, MAX_ITERATIONS), default=1000, show_default=True, help="Messages."
        ),
        click.option("-a", "--all", "all_sizes", is_flag=True, help="Sizes from 2 bytes to 8 MiB, SENDs to the MTU."),
        click.option("-e", "--events", is_flag=True, help="Sleep until a completion comes, instead of polling."),
        click.option("-c", "--check", is_flag=True, help="Compare every payload; takes time of its own."),
        click.option("--json", "as_json", is_flag=True, help="Print each row as a JSON line."),
    ]


def depth_option(default: int) -> Callable[[_F], _F]:
    """Add the option of how many requests there are at a time."""
    return click.option(
        "-t",
        "--tx-depth",
        "depth",
        type=click.IntRange(1, MAX_DEPTH),
        default=default,
        show_default=True,
        help="Requests at a time.",
    )


def measure(tool: Tool, options: PerfOptions, *, title: str, head: str) -> None:
    """Run one end, and print the table at the client. Raises NitroError."""
    if options.host is None:
        _serve(tool, options)
        return
    with Exchange.connect(options.host, port=options.port) as exchange:
        rows = run_client(
            exchange,
            options.plan(tool),
            device=options.device,
            run_dir=options.run_dir,
            events=options.events,
            on_connected=lambda own, remote: None if options.as_json else _print_head(title, head, own, remote),
        )
        for figures in rows:
            click.echo(json.dumps(asdict(figures)) if options.as_json else figures.row)
    if not options.as_json:
        click.echo(RULE)


def _serve(tool: Tool, options: PerfOptions) -> None:
    check_device(options.device, run_dir=options.run_dir)
    with Exchange.accept(options.port, on_listening=_print_listening) as exchange:
        plan = run_server(
            exchange,
            tool,
            device=options.device,
            run_dir=options.run_dir,
            events=options.events,
            on_connected=_print_addresses,
        )
    checked = ", every payload compared" if plan.check else ""
    click.echo(f"{len(plan.sizes)} sizes of {plan.iterations} {plan.operation.upper()}s{checked}")


def _print_listening(port: int) -> None:
    click.echo(f"waiting for a client at TCP port {port}")


def _print_head(title: str, head: str, own: Address, remote: Address) -> None:
    click.echo(RULE)
    click.echo(f"                    {title}")
    _print_addresses(own, remote)
    click.echo(RULE)
    click.echo(head)


def _print_addresses(own: Address, remote: Address) -> None:
    for name, address in (("local", own), ("remote", remote)):
        click.echo(f" {name:6} address: GID {gid_text(address.gid)} QPN {address.qpn:#06x} RKey {address.rkey:#08x}")
