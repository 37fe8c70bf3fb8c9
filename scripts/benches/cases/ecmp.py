"""ECMP of 256 source ports over 4 spines: even distribution, stable paths, agreement of discovery and counters.

h1 to h2 and back, over IPv4 and over IPv6, on the backend that this kernel supports; the worst value counts.
`share_p_value`: the chi-square test that all spines are equally likely. `moved_ports`: ports that take another spine
when probed again from a new socket. `same_ports_fraction`: ports that take the same spine in both directions; 1/4 if
the routers hash independently. `counter_mismatch`: packets from the ports of a spine, according to discovery, that the
spine's counters did not count.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.observe.route_probe import SpineMap, probe_spines
from netns.observe.spine_counters import count_packets
from netns.topology.addressing import IpVersion
from netns.topology.model import leaf_spine
from scripts.benches.fidelity.statistics import chi_square_sf
from scripts.benches.outcome import Round, Wanted

PORTS: Final = 256
ALPHA: Final = 0.01
WANTED: Final = (
    Wanted("share_p_value", ">=", ALPHA / 12),  # two directions, two versions of IP, three seeds: Bonferroni
    Wanted("moved_ports", "<=", 0),
    Wanted("counter_mismatch", "<=", 0),
)


def measure(seed: int) -> Round:
    shape = Shape(delay_us=100, limit_packets=10_000)
    topology = replace(leaf_spine(name=f"bench-ecmp-{os.getpid()}", shape=shape, seed=seed), ipv6=True)
    with Lab.up(topology) as lab:
        found = [_measure(lab, version) for version in lab.versions]
    return Round(
        seed,
        {
            "share_p_value": min(each["share_p_value"] for each in found),
            "moved_ports": sum(each["moved_ports"] for each in found),
            "same_ports_fraction": sum(each["same_ports_fraction"] for each in found) / len(found),
            "counter_mismatch": sum(each["counter_mismatch"] for each in found),
        },
    )


def _measure(lab: Lab, version: IpVersion) -> dict[str, float]:
    there, again, back = (
        probe_spines(lab, source=a, destination=b, ports=PORTS, version=version)
        for a, b in (("h1", "h2"), ("h1", "h2"), ("h2", "h1"))
    )
    mismatch = sum(abs(count.sent - count.seen) for count in count_packets(lab, there).values())
    first, second, reverse = (_spine_of(path_map) for path_map in (there, again, back))
    return {
        "share_p_value": min(_p_value(there), _p_value(back)),
        "moved_ports": sum(second.get(port) != spine for port, spine in first.items()) + PORTS - len(first),
        "same_ports_fraction": sum(reverse.get(port) == spine for port, spine in first.items()) / PORTS,
        "counter_mismatch": mismatch,
    }


def _spine_of(path_map: SpineMap) -> dict[int, str]:
    return {port: names[0] for port, names in path_map.seen.items() if len(set(names)) == 1}


def _p_value(path_map: SpineMap) -> float:
    expected = PORTS / len(path_map.spines)
    counts = [share * PORTS for share in path_map.shares.values()]
    statistic = sum((count - expected) ** 2 / expected for count in counts)
    return chi_square_sf(statistic, degrees=len(counts) - 1)
