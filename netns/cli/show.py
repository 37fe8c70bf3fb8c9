"""The output of `srd-lab`: plans as plain lines, labs and paths as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from netns.base.tables import count, print_table, table
from netns.lab.lab import Lab
from netns.lab.operations import Operation, undo
from netns.observe.route_probe import SpineMap

BAR_CELLS: Final = 20


def show_plan(steps: Sequence[Operation]) -> None:
    """Print every operation on a line, then those that undo them."""
    for step in steps:
        click.echo(str(step))
    click.echo("# undone by (the rest ends with its namespace):")
    for line in undo(steps):
        click.echo(line)


def plan_dict(steps: Sequence[Operation], *, lab: str, backend: str, reason: str) -> dict[str, Any]:
    """Return a plan for JSON."""
    operations = [str(step) for step in steps]
    return {"lab": lab, "backend": backend, "reason": reason, "operations": operations, "undone_by": undo(steps)}


def show_up(lab: Lab, *, seconds: float) -> None:
    """Print a summary of a new lab."""
    topology = lab.topology
    shaped = sum(link.shaped for link in topology.links)
    click.echo(
        f"lab {lab.name} is up after {seconds:.1f} s: {count(topology.hosts, 'host')}, "
        f"{count(topology.switches, 'switch', 'switches')}, {count(topology.links, 'link')} ({shaped} shaped)"
    )
    click.echo(f"backend: {lab.backend} ({lab.reason})")
    for note in lab.notes:
        click.echo(f"note: {note}")
    for host in topology.hosts[:8]:
        click.echo(f"  {host:15} {'  '.join(lab.address(host, version=version) for version in lab.versions)}")
    if len(topology.hosts) > 8:
        click.echo(f"  ... all of them: srd-lab status --lab {lab.name}")


def show_labs(labs: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each lab."""
    if not labs:
        click.echo("no lab is up; build one: srd-lab up reference")
        return
    rows = table("lab", "backend", "hosts", "switches", "state")
    for lab in labs:
        dead = [name for name, link in lab["links"].items() if link["dead"]]
        up = f"{lab['phase']}, {count(dead, 'link')} dead" if dead else lab["phase"]
        state = "; ".join(lab["problems"]) or up
        rows.add_row(lab["name"], lab["backend"], str(len(lab["hosts"])), str(len(lab["switches"])), state)
    print_table(rows)


def show_lab(lab: Mapping[str, Any]) -> None:
    """Print one lab: state, hosts with their addresses, links with their shapes, and the processes inside."""
    click.echo(f"lab {lab['name']}: {lab['phase']}, MTU {lab['mtu']}, seed {lab['seed']}")
    click.echo(f"backend: {lab['backend']} ({lab['reason']})")
    for problem in lab["problems"]:
        click.echo(f"problem: {problem}; remove the rest: srd-lab down --lab {lab['name']}")
    for note in lab["notes"]:
        click.echo(f"note: {note}")
    if lab["relay"] is not None:
        click.echo(f"relay: process {lab['relay']['pid']}")
    if lab["owner"] is not None:
        click.echo(f"owner: process {lab['owner']['pid']}")
    rows = table("host", "switch", "address (all spines)", "pinned (one a spine)")
    for name, host in lab["hosts"].items():
        addresses = " ".join(address for address in (host["address"], host["address6"]) if address is not None)
        rows.add_row(name, host["switch"], addresses, " ".join(host["pinned"].values()))
    print_table(rows)
    _show_links(lab["links"])
    for process in lab["processes"]:
        click.echo(f"running in {process['netns']}: {process['pid']} {process['command']}")


def _show_links(links: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the links that are shaped or dead, each direction's shape, and the number of the others."""
    shown = {name: link for name, link in links.items() if link["ab"] or link["ba"] or link["dead"]}
    if shown:
        rows = table("link", "state", "direction", "shape")
        for name, link in shown.items():
            state = "dead" if link["dead"] else "up"
            derived = link.get("derived", {})
            ab, ba = (shape_text(link[direction], derived.get(direction, ())) for direction in ("ab", "ba"))
            if ab == ba:
                rows.add_row(name, state, "both", ab)
                continue
            rows.add_row(name, state, f"{link['a']} to {link['b']}", ab)
            rows.add_row("", "", f"{link['b']} to {link['a']}", ba)
        print_table(rows)
    if others := [name for name in links if name not in shown]:
        click.echo(f"{count(others, 'link')} without a shape, up")


def shape_text(arguments: str | None, derived: Sequence[str]) -> str:
    """Return a shape in tc's notation, and which of its properties follow from others."""
    return (arguments or "no shape") + (f" (derived: {', '.join(derived)})" if derived else "")


def show_paths(lab: Lab, maps: Sequence[SpineMap]) -> None:
    """Print for each direction the ports on each spine and their share."""
    for path_map in maps:
        click.echo(f"{path_map.label}: {len(path_map.seen)} source ports, lab {lab.name}, {lab.backend} backend")
        rows = table("spine", "share", "", "source ports")
        for spine, share in path_map.shares.items():
            ports = [port for port, names in path_map.seen.items() if set(names) == {spine}]
            rows.add_row(spine, f"{share:.0%}", "#" * round(share * BAR_CELLS), _ranges(ports))
        print_table(rows)


def _ranges(ports: Sequence[int]) -> str:
    """Format sorted numbers, with ranges joined: "49152-49154 49160"."""
    ranges: list[tuple[int, int]] = []
    for port in ports:
        if ranges and ranges[-1][1] == port - 1:
            ranges[-1] = (ranges[-1][0], port)
        else:
            ranges.append((port, port))
    return " ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
