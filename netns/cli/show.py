"""What `srd-lab` prints: plans as plain lines, labs and paths as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.table import Table

from netns.ecmp import PathMap
from netns.lab import Lab
from netns.layers import short_name
from netns.steps import Step, undo

if TYPE_CHECKING:
    from netns.cli.run import Finished

BAR_CELLS: Final = 20


def show_plan(steps: Sequence[Step]) -> None:
    """Every step on a line, then what undoes them."""
    for step in steps:
        click.echo(str(step))
    click.echo("# undone by (the rest ends with its namespace):")
    for undoing in undo(steps):
        click.echo(str(undoing))


def show_up(lab: Lab, *, seconds: float) -> None:
    """What has been built, and what to do with it."""
    topology = lab.topology
    shaped = sum(link.shaped for link in topology.links)
    click.echo(
        f"lab {lab.name} is up after {seconds:.1f} s: {_count(topology.hosts, 'host')}, "
        f"{_count(topology.switches, 'switch', 'switches')}, {_count(topology.links, 'link')} ({shaped} shaped)"
    )
    click.echo(f"fabric: {lab.fabric} ({lab.reason})")
    for note in lab.notes:
        click.echo(f"note: {note}")
    for host in topology.hosts[:8]:
        click.echo(f"  {host:15} {lab.address(host)}")
    if len(topology.hosts) > 8:
        click.echo(f"  ... all of them: srd-lab status {lab.name}")


def show_labs(labs: Sequence[Mapping[str, Any]]) -> None:
    """A line for each lab."""
    if not labs:
        click.echo("no lab is up; build one: srd-lab up reference")
        return
    table = _table("lab", "fabric", "hosts", "switches", "state")
    for lab in labs:
        state = "; ".join(lab["problems"]) or lab["phase"]
        table.add_row(lab["name"], lab["fabric"], str(len(lab["hosts"])), str(len(lab["switches"])), state)
    _print(table)


def show_lab(lab: Mapping[str, Any]) -> None:
    """One lab: state, hosts with their addresses, and what runs inside."""
    click.echo(f"lab {lab['name']}: {lab['phase']}, MTU {lab['mtu']}, seed {lab['seed']}")
    click.echo(f"fabric: {lab['fabric']} ({lab['reason']})")
    for problem in lab["problems"]:
        click.echo(f"problem: {problem}; remove the rest: srd-lab down {lab['name']}")
    for note in lab["notes"]:
        click.echo(f"note: {note}")
    if lab["relay"] is not None:
        click.echo(f"relay: process {lab['relay']['pid']}")
    if lab["owner"] is not None:
        click.echo(f"owner: process {lab['owner']['pid']}")
    table = _table("host", "switch", "address (all spines)", "pinned (one a spine)")
    for name, host in lab["hosts"].items():
        table.add_row(name, host["switch"], host["address"], " ".join(host["pinned"].values()))
    _print(table)
    for process in lab["processes"]:
        click.echo(f"running in {process['netns']}: {process['pid']} {process['command']}")


def show_paths(lab: Lab, maps: Sequence[PathMap]) -> None:
    """For each direction: the ports on each spine and their share; then what is wrong."""
    for path_map in maps:
        click.echo(
            f"{path_map.source} to {path_map.destination}: {len(path_map.seen)} source ports, "
            f"lab {lab.name}, {lab.fabric} fabric"
        )
        table = _table("spine", "share", "", "source ports")
        for spine, share in path_map.shares.items():
            ports = [port for port, names in path_map.seen.items() if set(names) == {spine}]
            table.add_row(spine, f"{share:.0%}", "#" * round(share * BAR_CELLS), _ranges(ports))
        _print(table)
    for path_map in maps:
        for problem in path_map.problems:
            click.echo(f"problem: {problem}", err=True)


def show_run(finished: Finished, *, verify: bool) -> None:
    """Where each rank was, and how long an iteration took."""
    placement = finished.placement
    shared = placement.shared
    where = "nothing of the network shared" if shared is None else f"all in {shared[1]} ({short_name(shared[0])})"
    click.echo(
        f"job {placement.job.name}: {_count(placement.hosts, 'rank')}, {where}, lab {finished.lab}, "
        f"{finished.fabric} fabric"
    )
    table = _table("rank", "host", "address", "switches to the next", *(["pid", "ran in"] if verify else []))
    rows = zip(placement.hosts, finished.addresses, placement.ring_hops, finished.pids, finished.ran_in, strict=True)
    for rank, (host, address, hops, pid, seen) in enumerate(rows):
        table.add_row(str(rank), host, address, str(hops), *([str(pid), f"{seen or 'not seen'}"] if verify else []))
    _print(table)
    for note in placement.notes:
        click.echo(f"note: {note}")
    if finished.iterations_s:
        seconds = finished.iterations_s
        click.echo(
            f"{_count(seconds, 'iteration')}: median {median(seconds):.3f} s, "
            f"fastest {min(seconds):.3f} s, slowest {max(seconds):.3f} s"
        )


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=index == 0)
    return table


def _print(table: Table) -> None:
    Console(highlight=False, markup=False).print(table)


def _ranges(ports: Sequence[int]) -> str:
    """Sorted numbers, neighbours joined: "49152-49154 49160"."""
    ranges: list[tuple[int, int]] = []
    for port in ports:
        if ranges and ranges[-1][1] == port - 1:
            ranges[-1] = (ranges[-1][0], port)
        else:
            ranges.append((port, port))
    return " ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _count(things: Sequence[object], one: str, many: str | None = None) -> str:
    return f"{len(things)} {one if len(things) == 1 else many or one + 's'}"
