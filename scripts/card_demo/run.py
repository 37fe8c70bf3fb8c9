"""Two cards on the reference fabric with loss, two tenants each; prints what the tenants saw, and the cards' counters.

The cards run in the namespaces of the hosts h1 and h2 (one each), and keep their sockets in a directory of their own.
The tenants are processes outside: they need no network, only the device. `red` sends messages over efa_0, `blue`
writes to remote memory over efa_1, at the same time.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from netns.errors import LabError
from netns.lab.lab import Lab
from netns.topology.model import reference
from nitro_emu.control import ask
from nitro_emu.errors import NitroError
from scripts.compare.fabric import Fabric
from scripts.harness.errors import BenchError
from scripts.harness.process import ManagedProcess, ProcessSet

LAB_NAME: Final = "card-demo"
HOSTS: Final = ("h1", "h2")
TENANTS: Final = (("red", "efa_0", "messages", 20_000), ("blue", "efa_1", "writes", 64))
"""Name, device, work, and how many messages or writes."""
WORKS: Final = {"messages": "SENDs of 1 KiB", "writes": "RDMA WRITEs of 1 MiB"}
BOUND_S: Final = 240.0
_TICK_S: Final = 0.2
_LEFT: Final = {"tenant", "through", "card", "device"}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--loss", "loss_percent", default=1.0, show_default=True, help="Loss on every spine, in per cent.")
@click.option("--share", default=1.0, show_default=True, help="Share of the usual number of messages and writes.")
def command(*, loss_percent: float, share: float) -> None:
    """Run two emulated EFA cards over a lossy four-path fabric, with two tenants each."""
    with ExitStack() as stack:
        lab = stack.enter_context(_lab())
        fabric = Fabric(lab)
        fabric.set_loss(loss_percent)
        directory = Path(tempfile.mkdtemp(prefix="card-demo-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        pipes = stack.enter_context(ProcessSet())
        for name, *_ in TENANTS:
            _make_psk(directory / f"{name}.psk")
        cards = [_start_card(pipes, lab, host, directory) for host in HOSTS]
        click.echo(f"fabric: {lab.backend}, {len(lab.topology.spines)} paths, {loss_percent:g} % loss on each spine")
        results = _run_tenants(pipes, cards, share=share)
        _print(results, [ask(card, "stats") for card in cards])
    if any(result["wrong"] for result in results.values()):
        raise BenchError("a tenant saw wrong data")


@contextmanager
def _lab() -> Iterator[Lab]:
    with Lab.up(replace(reference(), name=LAB_NAME)) as lab:
        yield lab


def _make_psk(path: Path) -> None:
    """Make a tenant's key, which both cards have."""
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32) + "\n", encoding="ascii")


def _start_card(pipes: ProcessSet, lab: Lab, host: str, directory: Path) -> Path:
    """Start a card on a host; return the directory of its sockets once it serves."""
    run_dir = directory / host
    run_dir.mkdir()
    config = directory / f"card-{host}.yaml"
    address = lab.address(host)
    config.write_text(
        f"name: card-{host}\nrun_dir: {run_dir}\nvfs:\n"
        + "".join(
            f"  - {{name: {device}, address: {address}, port: {19875 + number}, "
            f"security: {{mode: psk, psk_file: {tenant}.psk}}}}\n"
            for number, (tenant, device, _, _) in enumerate(TENANTS)
        ),
        encoding="utf-8",
    )
    argv = [sys.executable, "-m", "nitro_emu.cli", "run", str(config), "--json"]
    process = pipes.add(ManagedProcess.start(f"card of {host}", command=lab.command(host, argv)))
    _wait_for(pipes, process, "ready")
    return run_dir


def _wait_for(pipes: ProcessSet, process: ManagedProcess, kind: str) -> dict[str, Any]:
    give_up_at = time.monotonic() + BOUND_S
    while time.monotonic() < give_up_at:
        for event in process.events:
            if event["event"] == kind:
                return event
        if process.exit_status is not None:
            break
        pipes.wait(until=time.monotonic() + _TICK_S)
    raise BenchError(f"{process.name}: no {kind}: {process.last_error or 'no output'}")


def _tenant(pipes: ProcessSet, name: str, *arguments: str) -> ManagedProcess:
    argv = [sys.executable, "-m", "scripts.card_demo.tenant", *arguments]
    return pipes.add(ManagedProcess.start(name, command=argv))


def _run_tenants(pipes: ProcessSet, cards: list[Path], *, share: float) -> dict[str, dict[str, Any]]:
    """Run all tenants at the same time; return what both ends of each have printed at the end."""
    receivers, senders = {}, {}
    for name, device, work, usual in TENANTS:
        common = (work, "--device", device, "--count", str(max(round(usual * share), 1)))
        receiver = receivers[name] = _tenant(pipes, name, "receive", *common, "--directory", str(cards[1]))
        address = _wait_for(pipes, receiver, "listening")
        where = [
            word
            for option in ("gid", "qp_num", "address", "rkey")
            for word in (f"--{option.replace('_', '-')}", str(address[option]))
        ]
        senders[name] = _tenant(pipes, name, "send", *common, "--directory", str(cards[0]), *where)
    return {
        name: {
            **_wait_for(pipes, senders[name], "sent"),
            "wrong": _wait_for(pipes, receivers[name], "received")["wrong"],
            "work": f"{device}: {usual * share:,.0f} {WORKS[work]}",
        }
        for name, device, work, usual in TENANTS
    }


def _print(results: dict[str, dict[str, Any]], stats: list[dict[str, Any]]) -> None:
    console = Console(highlight=False)
    seen = _table("what the tenants saw", "tenant", "through", "seconds", "MB/s", "own CPU s", "wrong")
    for name, result in results.items():
        rate = result["bytes"] / result["seconds"] / 1e6
        figures = (f"{result['seconds']:.2f}", f"{rate:.1f}", f"{result['cpu_s']:.2f}", str(result["wrong"]))
        seen.add_row(name, result["work"], *figures)
    console.print(seen)
    counted = _table("what the cards counted", "card", "device", "MB sent", "MB received", "packets resent")
    for host, card in zip(HOSTS, stats, strict=True):
        for device, vf in card["vfs"].items():
            port = vf["port"]
            megabytes = (f"{port[name] / 1e6:.1f}" for name in ("tx_bytes", "rx_bytes"))
            counted.add_row(f"card-{host}", device, *megabytes, f"{port['retrans_pkts']:,}")
    console.print(counted)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for column in columns:
        table.add_column(column, justify="left" if column in _LEFT else "right")
    return table


def main() -> int:
    """Run the demonstration; one line and status 1 when it cannot be done."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        command(standalone_mode=False)
    except (BenchError, LabError, NitroError, click.ClickException) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        print(f"demo-card: {message}", file=sys.stderr)
        return 2 if isinstance(error, click.UsageError) else 1
    except (KeyboardInterrupt, click.Abort):
        return 130
    return 0
