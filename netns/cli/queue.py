"""`srd-lab queue`: jobs that wait for quota, and give way to each other, as Kueue and HyperPod have it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from netns.backends.choice import require_root
from netns.base.options import Duration, json_lines_option, json_option
from netns.base.output import emit, print_json
from netns.base.program import CommandGroup
from netns.base.tables import print_result, print_table, table
from netns.children import Output
from netns.cli.commands import LAB_OPTION, lab_named
from netns.cli.queue_sim import sim
from netns.errors import GovernanceError, JobError
from netns.examples import file_named
from netns.governance.cluster import Cluster
from netns.governance.dispatch import GRACE_S, Dispatcher
from netns.governance.kueue_file import cluster_of, read_cluster
from netns.governance.model import FlavorResource
from netns.governance.store import JobRow, JobStore
from netns.inventory.fabric_layers import nodes_of
from netns.placement.job import read_job
from netns.signals import signals_raise

_DEFAULT: Final = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "srd-lab" / "queue.sqlite"

state_option = click.option(
    "--state",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=_DEFAULT,
    show_default="~/.local/state/srd-lab/queue.sqlite",
    envvar="SRD_LAB_QUEUE",
    help="The file that has the jobs.",
)


@click.group(cls=CommandGroup)
def queue() -> None:
    """Queue jobs: teams lend and borrow quota, and the more important job goes first.

    \b
      srd-lab up cluster
      srd-lab queue run teams.yaml &       run what is submitted, in that lab
      srd-lab queue submit job.yaml --queue team-a/jobs --priority high
      srd-lab queue why job                what it waits for
    """  # noqa: D301 - \b is click's mark for "do not rewrap"


def _store(path: Path) -> JobStore:
    return JobStore(path.expanduser())


@queue.command()
@click.argument("job_file", metavar="JOB")
@click.option("--queue", "local", metavar="NAMESPACE/NAME", help="The local queue.  [default: default/ the job's]")
@click.option("--priority", "priority_class", metavar="CLASS", default="", help="Its priority class.")
@json_option
@state_option
def submit(*, job_file: str, local: str | None, priority_class: str, as_json: bool, path: Path) -> None:
    """Queue a job: a file as `srd-lab run` takes it."""
    file = file_named(job_file)
    job = read_job(file)
    key = local or f"default/{job.queue}"
    with _store(path) as store:
        _check(_cluster(store), key, priority_class)
        try:
            number = store.submit(file.read_bytes(), queue=key, priority_class=priority_class, now=time.time())
        except OSError as error:
            raise JobError(f"{file}: {error.strerror}") from None
        row = store.find(str(number))
    print_result(_data(row), as_json=as_json, text=f"job {number} {job.name}: waits in {key}")


def _cluster(store: JobStore) -> Cluster | None:
    """Return the queues that the last `run` was given; None before the first."""
    found = None
    for content in store.cluster().values():
        found = cluster_of(content) if found is None else found | cluster_of(content)
    return found


def _check(cluster: Cluster | None, key: str, priority_class: str) -> None:
    """Raise GovernanceError for a queue or class that does not exist."""
    if cluster is None:
        return
    queues = [each.key for each in cluster.local_queues]
    if key not in queues:
        raise GovernanceError(f"--queue: no local queue {key}; there are {', '.join(queues)}")
    if priority_class and priority_class not in cluster.priorities:
        known = ", ".join(cluster.priorities) or "none"
        raise GovernanceError(f"--priority: no priority class {priority_class}; there are {known}")


@queue.command("ls")
@click.option("--all", "ended", is_flag=True, help="Also those that have ended.")
@json_option
@state_option
def ls(*, ended: bool, as_json: bool, path: Path) -> None:
    """List the jobs that wait or run."""
    with _store(path) as store:
        rows = store.rows(live=not ended)
    if as_json:
        print_json([_data(row) for row in rows])
        return
    columns = ("job", "name", "queue", "priority", "phase", "restarts", "reason", "hosts")
    shown = table(*columns, text={*columns} - {"restarts"})
    for row in rows:
        hosts = ",".join(row.hosts)
        own = (row.id, row.name, row.queue, row.priority_class, row.phase, row.restarts, row.reason, hosts)
        shown.add_row(*(str(each) if each != "" else "-" for each in own))
    print_table(shown)


def _data(row: JobRow) -> dict[str, Any]:
    shown = ("id", "name", "queue", "priority_class", "phase", "reason", "message", "hosts", "restarts")
    return {name: getattr(row, name) for name in shown} | {"submitted": row.created, "changed": row.changed}


@queue.command()
@click.argument("job")
@json_option
@state_option
def why(*, job: str, as_json: bool, path: Path) -> None:
    """Say in one line what a job waits for, or what has become of it."""
    with _store(path) as store:
        row = store.find(job)
    print_result(_data(row), as_json=as_json, text=_why(row))


def _why(row: JobRow) -> str:
    match row.phase:
        case "pending" if row.reason:
            return f"{row.name}: {row.reason}" + (f": {row.message}" if row.message else "")
        case "pending":
            return f"{row.name}: not looked at yet; srd-lab queue run serves the queues"
        case "running":
            return f"{row.name}: runs on {', '.join(row.hosts) or 'this host'}"
        case "stopping":
            return f"{row.name}: was told to end, and gives way"
        case _:
            return f"{row.name}: {row.phase}" + (f": {row.message}" if row.message else "")


@queue.command()
@click.argument("job")
@json_option
@state_option
def cancel(*, job: str, as_json: bool, path: Path) -> None:
    """Cancel a job; one that runs is ended, SIGTERM first."""
    with _store(path) as store:
        row = store.cancel(job, now=time.time())
    become = "cancelled" if row.phase == "cancelled" else "is being ended"
    print_result(_data(row), as_json=as_json, text=f"job {row.id} {row.name}: {become}")


@queue.command()
@click.argument("cluster_queue", metavar="CLUSTERQUEUE")
@click.option("--resume", is_flag=True, help="Let it go on.")
@json_option
@state_option
def drain(*, cluster_queue: str, resume: bool, as_json: bool, path: Path) -> None:
    """Stop a cluster queue: nothing new is admitted, and what runs waits again (stopPolicy HoldAndDrain)."""
    with _store(path) as store:
        cluster = _cluster(store)
        if cluster is not None and cluster_queue not in (known := [each.name for each in cluster.queues]):
            raise GovernanceError(f"no ClusterQueue {cluster_queue}; there are {', '.join(known)}")
        store.drain(cluster_queue, resume=resume)
    state, text = ("open", "goes on") if resume else ("drained", "drains")
    print_result({"queue": cluster_queue, "state": state}, as_json=as_json, text=f"{cluster_queue}: {text}")


@queue.command()
@json_option
@state_option
def status(*, as_json: bool, path: Path) -> None:
    """Show each cluster queue: its quota, what is used and borrowed, who waits."""
    with _store(path) as store:
        cluster, rows, drained, used = _cluster(store), store.rows(live=True), store.drained(), store.used()
    if cluster is None:
        raise GovernanceError("no queues yet: srd-lab queue run CLUSTER defines them")
    found = _queues(cluster, rows, drained, used)
    if as_json:
        print_json(found)
        return
    columns = ("queue", "cohort", "flavor", "resource", "quota", "used", "borrowed", "running", "waiting", "state")
    shown = table(*columns, text={"cohort", "flavor", "resource", "state"})
    for each in found:
        shown.add_row(*(str(each[name]) for name in each))
    print_table(shown)


def _queues(
    cluster: Cluster, rows: Sequence[JobRow], drained: set[str], used_by: Mapping[int, Mapping[FlavorResource, int]]
) -> list[dict[str, Any]]:
    """Return a line for each queue, flavor and resource."""
    of_local = {each.key: each.cluster_queue for each in cluster.local_queues}
    found = []
    for each in cluster.queues:
        own = [row for row in rows if of_local.get(row.queue) == each.name]
        active = [row for row in own if row.phase != "pending"]
        for group in each.groups:
            for flavor, quotas in group.flavors:
                for resource, quota in quotas.items():
                    used = sum(used_by.get(row.id, {}).get((flavor, resource), 0) for row in active)
                    found.append(
                        {
                            "queue": each.name,
                            "cohort": each.cohort or "-",
                            "flavor": flavor,
                            "resource": resource,
                            "quota": quota.nominal,
                            "used": used,
                            "borrowed": max(0, used - quota.nominal),
                            "running": len(active),
                            "waiting": len(own) - len(active),
                            "state": "drained" if each.name in drained else "open",
                        }
                    )
    return found


@queue.command()
@click.argument("files", metavar="CLUSTER...", nargs=-1, required=True)
@LAB_OPTION
@click.option("--until-idle", is_flag=True, help="End when no job is left.")
@click.option(
    "--grace",
    "grace_s",
    type=Duration(least_s=0.1, most_s=3600),
    default=GRACE_S,
    show_default="5s",
    help="From SIGTERM to SIGKILL of a job that gives way.",
)
@json_lines_option
@state_option
def run(
    *, files: tuple[str, ...], name: str | None, until_idle: bool, grace_s: float, as_json: bool, path: Path
) -> None:
    """Run the submitted jobs in a lab, until interrupted.

    CLUSTER is YAML of Kueue (ClusterQueue, LocalQueue, ResourceFlavor ...), or HyperPod's ClusterSchedulerConfig and
    ComputeQuota. If this ends, also by SIGKILL, its jobs end; they start again with the next `run`.
    """
    require_root("srd-lab queue run")
    paths = [file_named(each) for each in files]
    cluster = read_cluster(paths)
    lab = lab_named(name)

    def command(row: JobRow, hosts: Sequence[str]) -> list[str]:
        file = str(store.directory(row) / "job.yaml")
        return [sys.executable, "-m", "netns", "run", file, "--lab", lab.name, "--hosts", ",".join(hosts)]

    def on_line(job: str, stream: Output, line: str) -> None:
        if as_json:
            emit("output", job=job, stream=stream, line=line)
        else:
            click.echo(f"{job}: {line}", err=stream == "stderr")

    def tell(text: str) -> None:
        if as_json:
            emit("decision", reason=text)
        else:
            click.echo(f"# {text}")

    with _store(path) as store, store.served():
        store.set_cluster({str(each): each.read_bytes() for each in paths})
        dispatcher = Dispatcher(
            store,
            cluster,
            nodes_of(lab.topology),
            command=command,
            tell=tell,
            on_line=on_line,
            grace_s=grace_s,
        )
        tell(f"serves {len(cluster.queues)} queues in lab {lab.name}")
        with signals_raise(), dispatcher.children:
            while dispatcher.turn() or not until_idle:
                sys.stdout.flush()


queue.add_command(sim)
