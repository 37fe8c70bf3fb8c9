"""`srd-lab plan`, `up`, `status`, `exec`, `down` and `cleanup`.

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
from click.core import ParameterSource

from netns.backends.choice import Wanted, choose_backend, require_root
from netns.base.options import json_option
from netns.base.output import print_json
from netns.base.program import inner_command
from netns.cli.show import plan_dict, show_lab, show_labs, show_plan, show_up
from netns.errors import BackendError
from netns.examples import file_named
from netns.lab.builder import dismantle, problems
from netns.lab.lab import Lab
from netns.lab.plan import Backend, plan
from netns.lab.state import LabDirectory, leftover_directories, locked, recorded_labs
from netns.programs import tool
from netns.topology.file import read_topology
from netns.topology.model import Topology

LAB_VARIABLE: Final = "SRD_LAB"
LAB_OPTION: Final = click.option(
    "--lab", "name", metavar="NAME", envvar=LAB_VARIABLE, show_envvar=True, help="The lab; optional if only one is up."
)
_backend_option: Final = click.option(
    "--backend",
    type=click.Choice(["auto", "kernel", "relay"]),
    default="auto",
    show_default=True,
    help="What carries shaped links: the kernel's netem, or a relay process between TAP devices.",
)


@click.command("plan")
@click.argument("file")
@_backend_option
@json_option
def plan_command(*, file: str, backend: Wanted, as_json: bool) -> None:
    """Print the operations of `up FILE` with the same options, and those of `down`.

    It changes nothing, and needs no root; but only root can try what this kernel has, and who is not sees the plan for
    the kernel's netem unless --backend says otherwise.
    """
    topology = topology_named(file)
    chosen, reason = _planned(topology, backend)
    steps = plan(topology, chosen)
    if as_json:
        print_json(plan_dict(steps, lab=topology.name, backend=chosen, reason=reason))
    else:
        click.echo(f"# backend: {chosen} ({reason})")
        show_plan(steps)


def _planned(topology: Topology, wanted: Wanted) -> tuple[Backend, str]:
    """Return the backend that `up` would choose, and why. Raises BackendError."""
    if wanted != "auto":
        return wanted, "requested"
    if os.geteuid() != 0:
        return "kernel", "not tried without root; up may take the relay"
    return choose_backend(topology, wanted)


@click.command()
@click.argument("file")
@_backend_option
@json_option
def up(*, file: str, backend: Wanted, as_json: bool) -> None:
    """Build the topology in FILE.

    If this fails or is interrupted, everything is removed again. Remainders of a crashed lab of the same name are
    removed first.
    """
    started_at = time.monotonic()
    lab = Lab.up(topology_named(file), backend=backend)
    seconds = time.monotonic() - started_at
    if as_json:
        print_json({**lab.status(), "seconds": round(seconds, 3)})
    else:
        show_up(lab, seconds=seconds)


@click.command()
@click.option(
    "--lab",
    "name",
    metavar="NAME",
    envvar=LAB_VARIABLE,
    show_envvar=True,
    help="Show this lab: its hosts, links and processes.",
)
@json_option
def status(*, name: str | None, as_json: bool) -> None:
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
    arguments = inner_command(command, example="srd-lab exec h1 -- ip address")
    argv = lab_named(name).command(node, arguments)
    tool(arguments[0])  # `ip netns exec` would print an error of its own
    sys.stdout.flush()
    os.execv(argv[0], argv)  # noqa: S606 - no shell is involved


@click.command()
@LAB_OPTION
@click.option("--all", "everything", is_flag=True, help="Remove every recorded lab.")
@json_option
def down(*, name: str | None, everything: bool, as_json: bool) -> None:
    """Remove a lab and end the processes inside it."""
    require_root("srd-lab down")
    if everything and is_named():
        raise click.UsageError("give --lab NAME or --all, not both")
    names = list(recorded_labs()) if everything else [_only_lab(name)]
    for each in names:
        Lab.find(each).down()
        if not as_json:
            click.echo(f"lab {each} is down")
    if as_json:
        print_json({"down": names})


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


def is_named() -> bool:
    """Whether the command line names a lab, and not only the environment."""
    return click.get_current_context().get_parameter_source("name") is ParameterSource.COMMANDLINE


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


@click.command()
@click.option("--dry-run", is_flag=True, help="Only print what would be removed.")
@json_option
def cleanup(*, dry_run: bool, as_json: bool) -> None:
    """Remove what crashed labs left behind; labs that are up and complete stay (srd-lab down --all removes those).

    Only objects in a lab's record are touched. Each removed lab is printed on a line; it is no error if there is none.
    """
    require_root("srd-lab cleanup")
    verb, removed = "would remove" if dry_run else "removed", list[dict[str, str]]()

    def say(what: str, why: str) -> None:
        removed.append({"what": what, "why": why})
        if not as_json:
            click.echo(f"{verb} {what}: {why}")

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
            say(f"lab {name}", "; ".join(why))
        for directory in leftover_directories():
            if not dry_run:
                directory.remove()
            say(str(directory.path), "it holds no record")
    if as_json:
        print_json({"removed": removed, "dry_run": dry_run})
