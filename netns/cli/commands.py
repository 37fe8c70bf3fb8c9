"""The commands of `srd-lab`.

Exit status: 0 done, 1 failed, 2 wrong usage or wrong input file; `exec` has that of its command. Errors are one line on
stderr. Commands that build or look into namespaces need root; `plan` needs nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from netns.backends.choice import Wanted, require_root
from netns.cli.placement import place_command, topology_command
from netns.cli.show import show_lab, show_labs, show_paths, show_plan, show_up
from netns.errors import INPUT_ERRORS, BackendError, LabError
from netns.lab.lab import Lab
from netns.lab.plan import Backend, plan
from netns.lab.state import recorded_labs
from netns.observe.route_probe import MAX_PORTS, hops_to_spines, probe_spines
from netns.topology.file import read_topology
from netns.topology.model import Topology, reference

BUILTIN: Final = {"reference": reference}


class _Group(click.Group):
    """Turns this package's errors into one line and an exit status, whichever command raised them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except LabError as error:
            click.echo(f"srd-lab: {error}", err=True)
            ctx.exit(2 if isinstance(error, INPUT_ERRORS) else 1)
        except KeyboardInterrupt:
            click.echo("srd-lab: interrupted", err=True)
            ctx.exit(130)
        except SystemExit as stop:  # also from netns.lab.builder, on SIGTERM and SIGHUP
            if isinstance(stop.code, int) and stop.code > 128:
                click.echo("srd-lab: interrupted", err=True)
            raise


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="open-srd", prog_name="srd-lab")
def main() -> None:
    """Build networks of Linux namespaces to run SRD (or anything) on.

    FILE is a topology in YAML, or `reference`: two hosts, four paths of 250 Mbit/s between them. For a first look:

    \b
      srd-lab plan reference                 what would be built; needs no root
      srd-lab up reference                   build it
      srd-lab verify                         which source port takes which spine
      srd-lab exec h1 -- iperf3 -c 10.0.2.1  run something in a host
      srd-lab down                           remove everything
    """  # noqa: D301 - \b is click's mark for "do not rewrap"


@main.command("plan")
@click.argument("file")
@click.option("--backend", type=click.Choice(["kernel", "relay"]), default="kernel", show_default=True)
def plan_command(file: str, backend: Backend) -> None:
    """Print the steps that `up FILE` would take, and those that `down` would.

    Pure: reads the file, touches nothing, needs no root.
    """
    show_plan(plan(topology_named(file), backend))


@main.command()
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

    If it cannot be finished, or is interrupted, nothing of it is left. What a crashed lab of the same name left
    behind is removed first.
    """
    started_at = time.monotonic()
    lab = Lab.up(topology_named(file), backend=backend)
    show_up(lab, seconds=time.monotonic() - started_at)


@main.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def status(name: str | None, as_json: bool) -> None:  # noqa: FBT001 - click passes by keyword
    """Show the lab NAME, or a list of all labs."""
    if name is None:
        labs = list(_legible(recorded_labs()))
        click.echo(json.dumps({"labs": labs}, indent=2)) if as_json else show_labs(labs)
        return
    lab = Lab.find(name).status()
    click.echo(json.dumps(lab, indent=2)) if as_json else show_lab(lab)


@main.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--lab", "name", help="The lab; not needed when only one is up.")
@click.argument("node")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_command(name: str | None, node: str, command: tuple[str, ...]) -> None:
    """Run COMMAND inside the host or switch NODE; its exit status is this command's."""
    require_root("srd-lab exec")
    words = command[1:] if command[0] == "--" else command
    if not words:
        raise click.UsageError("no command; for example: srd-lab exec h1 -- ip address")
    argv = lab_named(name).command(node, words)
    if shutil.which(words[0]) is None:
        raise BackendError(f"{words[0]}: no such command")
    sys.stdout.flush()
    os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted


@main.command()
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Every lab that is recorded.")
def down(name: str | None, everything: bool) -> None:  # noqa: FBT001 - click passes by keyword
    """Remove the lab NAME (or the only one) and end what runs inside it."""
    require_root("srd-lab down")
    if name is not None and everything:
        raise click.UsageError("give NAME or --all, not both")
    for each in recorded_labs() if everything else [_only_lab(name)]:
        Lab.find(each).down()
        click.echo(f"lab {each} is down")


@main.command()
@click.argument("name", required=False)
@click.option("--ports", type=click.IntRange(1, MAX_PORTS), default=64, show_default=True, help="Source ports to try.")
def verify(name: str | None, ports: int) -> None:
    """Show which spine each source port takes between two hosts, in both directions and each version of IP.

    Exit status 1 if a spine is never used, or a port is not always on the same one, or is not answered.
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


def _legible(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The status of each lab; one whose record cannot be read (another version's) is a line on stderr instead."""
    for name in names:
        try:
            yield Lab.find(name).status()
        except BackendError as error:
            click.echo(f"srd-lab: {error}", err=True)


main.add_command(topology_command)
main.add_command(place_command)


def topology_named(file: str) -> Topology:
    """The topology in a file, or a builtin one. Raises TopologyError or ShapeError."""
    path = Path(file)
    if file in BUILTIN and not path.exists():
        return BUILTIN[file]()
    return read_topology(path)


def lab_named(name: str | None) -> Lab:
    """The lab called `name`, or the only one. Raises BackendError."""
    return Lab.find(_only_lab(name))


def _only_lab(name: str | None) -> str:
    """The name given, or that of the only lab."""
    if name is not None:
        return name
    labs = recorded_labs()
    if not labs:
        raise BackendError("no lab is up; build one: srd-lab up reference")
    if len(labs) > 1:
        raise BackendError(f"several labs are up; name one: {', '.join(labs)}")
    return labs[0]


def _far_hosts(topology: Topology) -> tuple[str, str]:
    """The first host, and the first that spines lie between."""
    first = topology.hosts[0]
    for host in topology.hosts:
        if hops_to_spines(topology, source=first, destination=host) is not None:
            return first, host
    raise BackendError(f"{topology.name}: no spine lies between {first} and another host; there are no paths to verify")
