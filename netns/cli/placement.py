"""`srd-lab topology` and `srd-lab place`: the layers that hosts share, and the hosts of a job's ranks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from netns.base.options import json_option
from netns.base.output import print_json
from netns.chart.branches import branches
from netns.chart.mermaid import mermaid
from netns.chart.page import page
from netns.cli.show_placement import (
    JSON_MATRIX_RANKS,
    compact_json,
    placement_dict,
    show_placement,
    show_topology,
    topology_dict,
)
from netns.errors import JobError, LabError
from netns.examples import file_named
from netns.inventory.fabric_layers import switches_of
from netns.inventory.layers import labelled, level_named, levels_of
from netns.inventory.node_export import to_ec2, to_kubernetes
from netns.inventory.node_files import read_nodes, topology_in
from netns.inventory.nodes import Node
from netns.placement.job import Job, JobTopology, read_job
from netns.placement.kueue import Kind, dump, manifests
from netns.placement.model import DEFAULT_PROFILE, Profile
from netns.placement.place import hostfile, place, replace_hosts
from netns.placement.running_pods import read_pods

EXPORTS: Final = {"ec2": to_ec2, "kubernetes": to_kubernetes}

FEATURE_GATES: Final = {
    "TASProfileMixed": "mixed",
    "TASBalancedPlacement": "balanced",
    "TASRespectNodeAffinityPreferred": "affinity_preferred",
    "TASMultiLayerTopology": "multi_layer",
}
"""Kueue's gates, and the fields of `Profile`."""


def profile_of(given: Iterable[str]) -> Profile:
    """Return the profile with the gates of all these GATE=true|false,... Raises click.BadParameter."""
    chosen: dict[str, bool] = {}
    for each in filter(None, ",".join(given).split(",")):
        gate, _, setting = each.strip().partition("=")
        if gate not in FEATURE_GATES or setting.lower() not in ("true", "false"):
            raise click.BadParameter(f"{each!r} is not GATE=true or GATE=false with one of {', '.join(FEATURE_GATES)}")
        chosen[FEATURE_GATES[gate]] = setting.lower() == "true"
    return replace(DEFAULT_PROFILE, **chosen)


_skip = click.option("--skip-unlabelled", is_flag=True, help="Omit nodes without network-node layers, and list them.")
_per_host = click.option(
    "--ranks-per-host",
    type=click.IntRange(min=1),
    help="Ranks per host; an upper bound if the nodes report a capacity.  [default: as reported, else 1]",
)


@click.command("topology")
@click.argument("file")
@click.option("--table", "form", flag_value="table", default=True, help="A table of shared layers (the default).")
@click.option("-J", "--json", "form", flag_value="json", help="Print one JSON document.")
@click.option("--mermaid", "form", flag_value="mermaid", help="Print a Mermaid flowchart.")
@click.option("--export", type=click.Choice(sorted(EXPORTS)), help="Print the nodes as EC2's or Kubernetes' JSON.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write an HTML page with a drawing to this file."
)
@_skip
def topology_command(
    file: str,
    form: str,
    export: str | None,
    html: Path | None,
    skip_unlabelled: bool,  # noqa: FBT001 - click passes by keyword
) -> None:
    """Show which hosts share network-node layers.

    FILE is a topology in YAML, an example (reference, cluster), or JSON of `aws ec2 describe-instance-topology` or
    `kubectl get nodes -o json`.
    """
    nodes = _nodes(file, skip=skip_unlabelled, ranks_per_host=None)
    whole = branches(nodes)
    if html is not None:
        try:
            html.write_text(page(whole, title=f"Topology of {Path(file).name}", switches=_switches(file)))
        except OSError as error:
            raise LabError(f"{html}: {error.strerror}") from None
        click.echo(f"wrote {html}")
    elif export is not None:
        print_json(EXPORTS[export](nodes))
    elif form == "json":
        print_json(topology_dict(whole, levels_of(nodes)))
    elif form == "mermaid":
        click.echo(mermaid(whole), nl=False)
    else:
        show_topology(whole, levels_of(nodes))


@click.command("place")
@click.argument("job_file", metavar="JOB")
@click.option("--topology", "file", required=True, help="The nodes: any input of `srd-lab topology`.")
@click.option("--required-topology", metavar="LAYER", help="All ranks in one domain of LAYER, or fail.")
@click.option(
    "--preferred-topology", metavar="LAYER", help="In one domain of LAYER if possible, else of the next level up."
)
@click.option("--emit", type=click.Choice(["kueue", "hostfile"]), help="Print manifests, or an MPI host file, instead.")
@click.option(
    "--kind", type=click.Choice(["job", "pytorchjob"]), default="job", show_default=True, help="Kind of the manifest."
)
@json_option
@click.option(
    "--hops", is_flag=True, help=f"With --json: the matrix of distances also of more than {JSON_MATRIX_RANKS} ranks."
)
@click.option(
    "--pods",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The pods that run already: kubectl get pods --all-namespaces -o json.",
)
@click.option("--current", type=click.Path(path_type=Path), metavar="FILE", help="The placement by now: of --json.")
@click.option(
    "--replace",
    "lost",
    multiple=True,
    metavar="HOST",
    help="Move the ranks of HOST, which is lost; all others stay. May be repeated.",
)
@click.option(
    "--feature-gates",
    "gates",
    multiple=True,
    callback=lambda _context, _option, given: profile_of(given),
    metavar="GATE=true|false,...",
    help=f"Kueue's: {', '.join(FEATURE_GATES)}. May be repeated.",
)
@_per_host
@_skip
def place_command(
    *,
    job_file: str,
    file: str,
    required_topology: str | None,
    preferred_topology: str | None,
    emit: str | None,
    kind: Kind,
    as_json: bool,
    hops: bool,
    pods: Path | None,
    current: Path | None,
    lost: tuple[str, ...],
    gates: Profile,
    ranks_per_host: int | None,
    skip_unlabelled: bool,
) -> None:
    """Show the host of each rank of a job, and the distances between ranks.

    JOB is a file in YAML, or the example `allreduce`. LAYER is 1 (the farthest) to 4, host, ultraserver-id or a node
    label's key. Exit status 1 if the job does not fit.

    \b
      srd-lab place job.yaml --topology nodes.json --pods pods.json --json >placement.json
      srd-lab place job.yaml --topology nodes.json --current placement.json --replace node7
    """  # noqa: D301 - \b is click's mark for "do not rewrap"
    if (current is None) == bool(lost):
        raise click.UsageError("--replace HOST needs --current FILE, and the other way round")
    job = overridden(read_job(file_named(job_file)), required=required_topology, preferred=preferred_topology)
    nodes = _nodes(file, skip=skip_unlabelled, ranks_per_host=ranks_per_host)
    usage = None if pods is None else read_pods(pods)
    if current is not None:
        hosts = _current_hosts(current)
        placement = replace_hosts(job, nodes, hosts=hosts, lost=lost, usage=usage, profile=gates, where=file)
    else:
        placement = place(job, nodes, usage=usage, profile=gates, where=file)
    for note in placement.notes:
        click.echo(f"note: {note}", err=True)
    if emit == "kueue":
        click.echo(dump(manifests(job, nodes=nodes, levels=placement.levels, kind=kind)), nl=False)
    elif emit == "hostfile":
        click.echo(hostfile(placement), nl=False)
    elif as_json:
        click.echo(compact_json(placement_dict(placement, matrix=hops)))
    else:
        show_placement(placement)


def _current_hosts(path: Path) -> list[str]:
    """Return the host of each rank in the output of `srd-lab place --json`. Raises JobError."""
    try:
        hosts = json.loads(path.read_bytes())["hosts"]
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        hosts = None
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise JobError(f"{path}: holds no placement; give the output of srd-lab place --json")
    return hosts


def overridden(job: Job, *, required: str | None, preferred: str | None) -> Job:
    """Replace the layer of `job` by that of the command line, if there is one. Raises UsageError or JobError."""
    if required is None and preferred is None:
        return job
    if required is not None and preferred is not None:
        raise click.UsageError("give --required-topology or --preferred-topology, not both")
    option, level = ("required", required) if required is not None else ("preferred", preferred)
    if not level:
        raise JobError(f"--{option}-topology: {level!r} is no layer; give 1 to 4, host, or a node label's key")
    changed: dict[str, Any] = {option: level_named(level)}
    return job.model_copy(update={"topology": JobTopology(**changed)})


def _switches(file: str) -> dict[str, tuple[str, ...]]:
    """Return the switches of the domains of a topology; nothing of a list of nodes, which names none."""
    topology = topology_in(file_named(file))
    return {} if topology is None else switches_of(topology)


def _nodes(file: str, *, skip: bool, ranks_per_host: int | None) -> tuple[Node, ...]:
    nodes = read_nodes(
        file_named(file), ranks_per_host=ranks_per_host, on_warning=lambda note: click.echo(f"note: {note}", err=True)
    )
    if not skip:
        return nodes
    kept, others = labelled(nodes)
    if others:
        click.echo(f"note: left out, without network-node layers: {', '.join(node.name for node in others)}", err=True)
    return tuple(kept)
