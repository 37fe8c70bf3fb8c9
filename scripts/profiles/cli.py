"""scripts/profile [bulk|rate|ping] [--mtu N] [--seconds N] [--top N] [--json]: shares of functions and system calls.

Functions are those of the interpreted sources, as a profiler cannot see compiled ones.

Exit status: 0, 1 if it could not be measured (with the reason), 2 for wrong usage.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from netns.errors import LabError
from scripts.harness.client_server import run_both
from scripts.harness.environment import environment
from scripts.harness.errors import BenchError
from scripts.harness.unwinding import unwinding
from scripts.harness.veth_pair import VethPair, veth_pair
from scripts.installed import ROOT
from scripts.profiles.counters import Share, function_shares, syscall_shares

WORKER: Final = "scripts.benches.veth.worker"
SMALL: Final = ("--message-bytes", "64", "--peers", "1")
WORKLOADS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "bulk": ("bulk-receive", "bulk-send", ()),
    "rate": ("rate-receive", "rate-send", SMALL),
    "ping": ("ping-receive", "ping-send", ()),
}
"""Name -> the two roles of the benches' worker, and the arguments of both."""
LAB_NAME: Final = "profile-veth"
OF_SOURCES: Final = ("env", f"PYTHONPATH={ROOT}")
"""Runs the sources, as a profiler sees no compiled functions. System calls are those of the installed package."""
SLOWER: Final = 240.0
"""Additional seconds that a run under a profiler may take before it counts as hanging."""
ENDS: Final = ("receiver", "sender")

Shares = dict[str, list[Share]]
Wrapper = Callable[[str], list[str]]
"""End -> the command before the worker's arguments: an interpreter under a profiler or tracer."""


@click.command()
@click.argument("workload", type=click.Choice(list(WORKLOADS)), default="bulk")
@click.option("--mtu", type=click.IntRange(1280, 65535), default=9000, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=2.0, show_default=True)
@click.option("--top", type=click.IntRange(min=1), default=15, show_default=True, help="How many of each to show.")
@click.option("--json", "as_json", is_flag=True, help="Print all shares as JSON, one object on stdout's last line.")
def main(*, workload: str, mtu: int, seconds: float, top: int, as_json: bool) -> None:
    """Show how the CPU time of both ends is distributed over functions and system calls."""
    if shutil.which("strace") is None:
        raise click.ClickException("strace is missing, which counts system calls; run: make setup")
    console = Console(stderr=as_json, highlight=False)
    try:
        with (
            unwinding(),
            tempfile.TemporaryDirectory() as directory,
            veth_pair(mtu=mtu, offload=True, name=LAB_NAME) as two,
        ):
            functions, calls = _measure(two, workload, seconds=seconds, directory=Path(directory))
    except (BenchError, LabError) as error:
        raise click.ClickException(f"{workload}: {error}") from error
    for end in ENDS:
        console.print(_table(f"{workload}, {end}: functions (own time)", functions[end][:top]))
        console.print(_table(f"{workload}, {end}: system calls", calls[end][:top]))
    if as_json:
        found = {
            "functions": {end: [asdict(share) for share in shares] for end, shares in functions.items()},
            "system_calls": {end: [asdict(share) for share in shares] for end, shares in calls.items()},
        }
        click.echo(json.dumps({"workload": workload, "mtu": mtu, "environment": environment(), **found}))


def _measure(two: VethPair, workload: str, *, seconds: float, directory: Path) -> tuple[Shares, Shares]:
    """Return the shares of functions and of system calls, by end."""
    profiles = {end: directory / f"{end}.profile" for end in ENDS}
    traces = {end: directory / f"{end}.strace" for end in ENDS}
    _run(
        two,
        workload,
        seconds=seconds,
        wrapper=lambda end: [*OF_SOURCES, sys.executable, "-m", "cProfile", "-o", str(profiles[end]), "-m", WORKER],
    )
    _run(
        two,
        workload,
        seconds=seconds,
        wrapper=lambda end: ["strace", "-f", "-c", "-o", str(traces[end]), sys.executable, "-m", WORKER],
    )
    functions = {end: function_shares(path) for end, path in profiles.items()}
    return functions, {end: syscall_shares(path.read_text()) for end, path in traces.items()}


def _run(two: VethPair, workload: str, *, seconds: float, wrapper: Wrapper) -> None:
    receive, send, options = WORKLOADS[workload]

    def client(host: str, port: int) -> Sequence[str]:
        return [*wrapper("sender"), send, host, str(port), "--seconds", str(seconds), *options]

    run_both(
        two,
        server=[*wrapper("receiver"), receive, two.receiver, *options],
        client=client,
        bound_s=SLOWER + 20 * seconds,
    )


def _table(title: str, shares: Sequence[Share]) -> Table:
    table = Table(title=title, title_justify="left")
    for name, justify in (("share", "right"), ("calls", "right"), ("us each", "right"), ("", "left")):
        table.add_column(name, justify="left" if justify == "left" else "right")
    for share in shares:
        table.add_row(f"{100 * share.fraction:.1f} %", f"{share.calls:,}", f"{share.us_per_call:.2f}", share.name)
    return table
