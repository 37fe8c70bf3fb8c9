"""`srd-lab verify`: the spine of each source port between hosts, found by probes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from netns.backends.choice import require_root
from netns.base.options import json_option
from netns.base.output import print_json
from netns.cli.commands import LAB_OPTION, lab_named
from netns.cli.show import show_paths
from netns.errors import BackendError
from netns.observe.route_probe import MAX_PORTS, SpineMap, hops_to_spines, probe_spines
from netns.observe.spine_counters import Count, count_packets, disagreements
from netns.topology.addressing import IpVersion
from netns.topology.model import Topology


@click.command()
@LAB_OPTION
@click.option("--ports", type=click.IntRange(1, MAX_PORTS), default=64, show_default=True, help="Source ports to try.")
@click.option("-4", "ipv4", is_flag=True, help="Over IPv4 only.")
@click.option("-6", "ipv6", is_flag=True, help="Over IPv6 only.")
@click.option("--counters", is_flag=True, help="Also check against the counters of the links to the spines.")
@json_option
@click.argument("source", required=False)
@click.argument("destination", required=False)
def verify(
    *,
    name: str | None,
    ports: int,
    ipv4: bool,
    ipv6: bool,
    counters: bool,
    as_json: bool,
    source: str | None,
    destination: str | None,
) -> None:
    """Show the spine of each source port from SOURCE to DESTINATION, found by probes whose TTL expires there.

    Without hosts it is between two that have spines between them, in both directions; and for each version of IP that
    the lab has.

    Exit status 1 if a spine is never used, or a port uses several spines, or its probes get no reply. --counters also
    sends packets to the destination, and compares counters; other traffic in the lab is counted, too.
    """
    require_root("srd-lab verify")
    if source is not None and destination is None:
        raise click.UsageError("give SOURCE and DESTINATION, or neither")
    if ipv4 and ipv6:
        raise click.UsageError("-4 and -6 exclude each other; give one of them")
    lab = lab_named(name)
    versions: Sequence[IpVersion] = [6] if ipv6 else [4] if ipv4 else lab.versions
    pairs = list(_pairs(lab.topology, source, destination))
    maps = [
        probe_spines(lab, source=a, destination=b, ports=ports, version=version)
        for version in versions
        for a, b in pairs
    ]
    counts = [count_packets(lab, each) if counters else {} for each in maps]
    problems = [
        problem
        for each, counted in zip(maps, counts, strict=True)
        for problem in (*each.problems, *disagreements(each, counted))
    ]
    if as_json:
        paths = [_path_dict(each, counted) for each, counted in zip(maps, counts, strict=True)]
        print_json({"lab": lab.name, "backend": lab.backend, "paths": paths, "problems": problems})
    else:
        show_paths(lab, maps)
        for problem in problems:
            click.echo(f"problem: {problem}", err=True)
    if problems:
        sys.exit(1)


def _pairs(topology: Topology, source: str | None, destination: str | None) -> Iterator[tuple[str, str]]:
    """Yield the directions to probe. Raises BackendError."""
    if source is not None and destination is not None:
        yield source, destination
        return
    first = topology.hosts[0]
    for host in topology.hosts:
        if hops_to_spines(topology, source=first, destination=host) is not None:
            yield first, host
            yield host, first
            return
    raise BackendError(f"{topology.name}: no spine lies between {first} and another host; there are no paths to verify")


def _path_dict(found: SpineMap, counts: Mapping[str, Count]) -> dict[str, Any]:
    return {
        "source": found.source,
        "destination": found.destination,
        "ip_version": found.version,
        "shares": found.shares,
        "ports": {port: names[0] if len(set(names)) == 1 else list(names) for port, names in found.seen.items()},
        "counters": {spine: asdict(count) for spine, count in counts.items()},
    }
