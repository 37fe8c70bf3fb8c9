"""`srd-lab plan`, `up`, `status`, `exec`, `down` and `verify`.

Exit status: 0 success, 1 failure, 2 wrong usage or wrong input file; `exec` has that of its command. Errors are one
line on stderr. Commands that create or enter namespaces need root; `plan` does not.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from netns.backends.choice import Wanted, require_root
from netns.base.options import json_option
from netns.base.output import print_json
from netns.cli.show import show_lab, show_labs, show_paths, show_plan, show_up
from netns.errors import BackendError
from netns.examples import file_named
from netns.lab.builder import dismantle, problems
from netns.lab.lab import Lab
from netns.lab.plan import Backend, plan
from netns.lab.state import LabDirectory, leftover_directories, locked, recorded_labs
from netns.observe.route_probe import MAX_PORTS, hops_to_spines, probe_spines
from netns.programs import tool
from netns.topology.file import read_topology
from netns.topology.model import Topology

LAB_OPTION: Final = click.option("--lab", "name", metavar="NAME", help="The lab; optional if only one is up.")


@click.command("plan")
@click.argument("file")
@click.option("--backend", type=click.Choice(["kernel", "relay"]), default="kernel", show_default=True)
def plan_command(file: str, backend: Backend) -> None:
    """Print the operations of `up FILE`, and those of `down`.

    This only reads the file; it changes nothing and needs no root.
    """
    show_plan(plan(topology_named(file), backend))


@click.command()
@click.argument("file")
@click.option(
    "--backend",
    type=click.Choice(["auto", "kernel", "relay"]),
    default="auto",
    show_default=True,
    help="What carries shaped links: the kernel's netem, or a relay process between TAP devices.",
)
def up(file: str, backend: Wanted) -> None:
    """Build the topology in FILE.

    If this fails or is interrupted, everything is removed again. Remainders of a crashed lab of the same name are
    removed first.
    """
    started_at = time.monotonic()
    lab = Lab.up(topology_named(file), backend=backend)
    show_up(lab, seconds=time.monotonic() - started_at)


@click.command()
@click.option("--lab", "name", metavar="NAME", help="Show this lab: its hosts, links and processes.")
@json_option
def status(name: str | None, as_json: bool) -> None:  # noqa: FBT001 - click passes by keyword
    """List all labs, or show one of them with the current shapes of its links."""
    if name is None:
        labs = list(_readable(recorded_labs()))
        print_json({"labs": labs}) if as_json else show_labs(labs)
        return
    lab = Lab.find(name).status()
    print_json(lab) if as_json else show_lab(lab)


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@LAB_OPTION
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_command(name: str | None, node: str, command: tuple[str, ...]) -> None:
    """Run COMMAND inside the host or switch NODE; the exit status is that of COMMAND."""
    require_root("srd-lab exec")
    arguments = command[1:] if command[0] == "--" else command
    if not arguments:
        raise click.UsageError("no command; for example: srd-lab exec h1 -- ip address")
    argv = lab_named(name).command(node, arguments)
    tool(arguments[0])  # `ip netns exec` would print an error of its own
    sys.stdout.flush()
    os.execv(argv[0], argv)  # noqa: S606 - no shell is involved


@click.command()
@LAB_OPTION
@click.option("--all", "everything", is_flag=True, help="Remove every recorded lab.")
def down(name: str | None, everything: bool) -> None:  # noqa: FBT001 - click passes by keyword
    """Remove a lab and end the processes inside it."""
    require_root("srd-lab down")
    if name is not None and everything:
        raise click.UsageError("give --lab NAME or --all, not both")
    for each in recorded_labs() if everything else [_only_lab(name)]:
        Lab.find(each).down()
        click.echo(f"lab {each} is down")


@click.command()
@LAB_OPTION
@click.option("--ports", type=click.IntRange(1, MAX_PORTS), default=64, show_default=True, help="Source ports to try.")
def verify(name: str | None, ports: int) -> None:
    """Show the spine of each source port between two hosts, in both directions and for each version of IP.

    Exit status 1 if a spine is never used, or a port uses several spines, or its probes get no reply.
    """
    require_root("srd-lab verify")
    lab = lab_named(name)
    source, destination = _far_hosts(lab.topology)
    pairs = ((source, destination), (destination, source))
    maps = [
        probe_spines(lab, source=a, destination=b, ports=ports, version=version)
        for version in lab.versions
        for a, b in pairs
    ]
    show_paths(lab, maps)
    if any(path_map.problems for path_map in maps):
        sys.exit(1)


def _readable(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the status of each lab; print a line on stderr for a record that cannot be read (of another version)."""
    for name in names:
        try:
            yield Lab.find(name).status()
        except BackendError as error:
            click.echo(f"srd-lab: {error}", err=True)


def topology_named(file: str) -> Topology:
    """Return the topology in a file, or an example. Raises TopologyError or ShapeError."""
    return read_topology(file_named(file))


def lab_named(name: str | None) -> Lab:
    """Return the lab called `name`, or the only one. Raises BackendError."""
    return Lab.find(_only_lab(name))


def _only_lab(name: str | None) -> str:
    """Return the given name, or that of the only lab."""
    if name is not None:
        return name
    labs = recorded_labs()
    if not labs:
        raise BackendError("no lab is up; build one: srd-lab up reference")
    if len(labs) > 1:
        raise BackendError(f"several labs are up; name one with --lab: {', '.join(labs)}")
    return labs[0]


def _far_hosts(topology: Topology) -> tuple[str, str]:
    """Return the first host, and the first host with spines on the paths to it."""
    first = topology.hosts[0]
    for host in topology.hosts:
        if hops_to_spines(topology, source=first, destination=host) is not None:
            return first, host
    raise BackendError(f"{topology.name}: no spine lies between {first} and another host; there are no paths to verify")


@click.command()
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
def cleanup(dry_run: bool) -> None:  # noqa: FBT001 - click passes by keyword
    """Remove what crashed labs left behind; labs that are up and complete stay (srd-lab down --all removes those).

    Only objects in a lab's record are touched. Each removed lab is printed on a line; it is no error if there is none.
    """
    require_root("srd-lab cleanup")
    verb = "would remove" if dry_run else "removed"
    with locked():
        for name in recorded_labs():
            directory = LabDirectory(name)
            try:
                state = directory.read()
            except BackendError as error:
                click.echo(f"srd-lab: {error}", err=True)
                continue
            if state is None or not (why := problems(state)):
                continue
            if not dry_run:
                dismantle(directory, state)
            click.echo(f"{verb} lab {name}: {'; '.join(why)}")
        for directory in leftover_directories():
            if not dry_run:
                directory.remove()
            click.echo(f"{verb} {directory.path}: it holds no record")
