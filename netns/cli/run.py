"""`srd-lab run`: place a job on a lab's hosts, start a rank on each, wait, and report the time of an iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import click

from netns.backends.choice import require_root
from netns.base.options import Duration, json_option
from netns.base.output import print_json
from netns.base.tables import count, print_table, table
from netns.children import Output
from netns.cli.commands import LAB_OPTION, is_named, lab_named, topology_named
from netns.cli.placement import overridden
from netns.errors import JobError, RankError
from netns.examples import file_named
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.layers import levels_of, short_name
from netns.lab.lab import Lab
from netns.launcher import Launcher
from netns.placement import Job, Placement, place, read_job
from netns.signals import signals_raise


@dataclass(frozen=True, slots=True)
class Finished:
    """The results of a job that ran to its end."""

    lab: str
    backend: str
    placement: Placement
    addresses: tuple[str, ...]
    pids: tuple[int, ...]
    ran_in: tuple[str | None, ...]
    """Rank -> the node of its process's network namespace, according to the kernel; None: not seen in any."""

    iterations_s: tuple[float, ...]

    @property
    def misplaced(self) -> list[str]:
        """Ranks that were not seen where they were placed, one line each."""
        return [
            f"rank {rank} was placed on {host}, " + (f"but ran on {seen}" if seen else "but was not seen on any host")
            for rank, (host, seen) in enumerate(zip(self.placement.hosts, self.ran_in, strict=True))
            if host != seen
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the results for JSON."""
        shared = self.placement.shared
        return {
            "job": self.placement.job.name,
            "lab": self.lab,
            "backend": self.backend,
            "shared": None if shared is None else {"level": shared[0], "value": shared[1]},
            "ring_hops": list(self.placement.ring_hops),
            "ranks": [
                {"rank": rank, "host": host, "address": address, "pid": pid, "ran_in": seen}
                for rank, (host, address, pid, seen) in enumerate(
                    zip(self.placement.hosts, self.addresses, self.pids, self.ran_in, strict=True)
                )
            ],
            "iterations_seconds": list(self.iterations_s),
            "seconds_per_iteration": median(self.iterations_s) if self.iterations_s else None,
        }


@click.command()
@click.argument("job_file", metavar="JOB")
@click.option("--topology", "file", help="Build this topology for the job, and remove it afterwards.")
@LAB_OPTION
@click.option("--required-topology", "required", metavar="LAYER", help="All ranks in one domain of LAYER, or fail.")
@click.option("--preferred-topology", "preferred", metavar="LAYER", help="The same if possible, else a level up.")
@click.option("--hosts", metavar="HOST,...", help="Run on these hosts, in order of rank, instead of placing the job.")
@click.option("--check-placement", is_flag=True, help="Show where each rank ran, by its network namespace.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Duration(least_s=0.001, most_s=30 * 86400),
    help="End the job after this time, as 90s.",
)
@json_option
def run(
    *,
    job_file: str,
    file: str | None,
    name: str | None,
    required: str | None,
    preferred: str | None,
    hosts: str | None,
    check_placement: bool,
    timeout_s: float | None,
    as_json: bool,
) -> None:
    """Run a job: place its ranks on hosts, and start one rank on each.

    JOB is a file in YAML, or the example `allreduce`.

    The environment of ranks has RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as with torchrun, and RANK_HOSTS, all
    addresses in order of rank, and RANK_LEAF, its host's switch. With --json their output goes to stderr. Exit status
    1 if a rank fails, which ends the others.
    """
    if file is not None and is_named():
        raise click.UsageError("give --topology or --lab, not both")
    require_root("srd-lab run")
    job = overridden(read_job(file_named(job_file)), required=required, preferred=preferred)
    with signals_raise(), _lab(file, name) as lab:
        given = None if hosts is None else hosts.split(",")
        finished = run_job(lab, job, hosts=given, timeout_s=timeout_s, quiet=as_json)
    print_json(finished.to_dict()) if as_json else _show(finished, check_placement=check_placement)
    if check_placement and finished.misplaced:
        raise RankError(finished.misplaced[0])


def run_job(
    lab: Lab, job: Job, *, hosts: Sequence[str] | None = None, timeout_s: float | None = None, quiet: bool = False
) -> Finished:
    """Place `job` on the hosts of `lab`, or take those given, and run it to its end.

    The output of ranks is printed with their number before each line; on stderr if `quiet`. Raises the errors of
    `place`, BackendError if a rank cannot be started, RankError if one fails.
    """

    def on_line(rank: int, stream: Output, line: str) -> None:
        click.echo(f"[{rank}] {line}", err=quiet or stream == "stderr")

    placement = _placement(lab, job, hosts)
    with Launcher.start(lab, hosts=placement.hosts, command=job.command, env=job.env) as ranks:
        ranks.wait(on_line=on_line, timeout_s=timeout_s)
        return Finished(
            lab=lab.name,
            backend=lab.backend,
            placement=placement,
            addresses=tuple(lab.address(host) for host in placement.hosts),
            pids=tuple(rank.popen.pid for rank in ranks.ranks),
            ran_in=tuple(rank.ran_in for rank in ranks.ranks),
            iterations_s=tuple(ranks.iterations_s),
        )


def _placement(lab: Lab, job: Job, hosts: Sequence[str] | None) -> Placement:
    """Return where the ranks run. Raises JobError for hosts that the lab does not have, or too many or few."""
    nodes = nodes_of(lab.topology)
    if hosts is None:
        return place(job, nodes, where=f"lab {lab.name}")
    by_name = {node.name: node for node in nodes}
    for host in hosts:
        if host not in by_name:
            raise JobError(f"--hosts: {host}: lab {lab.name} has no such host; it has {', '.join(by_name)}")
    if len(hosts) != job.ranks:
        raise JobError(f"--hosts: {len(hosts)} hosts for {job.ranks} ranks of job {job.name}")
    return Placement(job, levels_of(nodes), tuple(by_name[host] for host in hosts))


@contextmanager
def _lab(file: str | None, name: str | None) -> Iterator[Lab]:
    """Yield the lab that is up, or one that is built from a file and removed afterwards."""
    if file is None:
        yield lab_named(name)
        return
    with Lab.up(topology_named(file)) as made:
        yield made


def _show(finished: Finished, *, check_placement: bool) -> None:
    """Print the host of each rank, and the time of an iteration."""
    placement = finished.placement
    shared = placement.shared
    where = "sharing no layer" if shared is None else f"all in {short_name(shared[0])} {shared[1]}"
    click.echo(f"job {placement.job.name}: {count(placement.hosts, 'rank')}, {where}")
    click.echo(f"lab {finished.lab}, {finished.backend} backend")
    rows = table("rank", "host", "address", "switches to the next", *(["process", "ran in"] if check_placement else []))
    for rank, host in enumerate(placement.hosts):
        seen = [str(finished.pids[rank]), finished.ran_in[rank] or "not seen"] if check_placement else []
        rows.add_row(str(rank), host, finished.addresses[rank], str(placement.ring_hops[rank]), *seen)
    print_table(rows)
    for note in placement.notes:
        click.echo(f"note: {note}", err=True)
    if seconds := finished.iterations_s:
        click.echo(
            f"{count(seconds, 'iteration')}: median {median(seconds):.3f} s, "
            f"fastest {min(seconds):.3f} s, slowest {max(seconds):.3f} s"
        )
