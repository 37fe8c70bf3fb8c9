"""ECMP: 256 source ports over 4 spines: does each spine get its share, does a port stay, do two views agree.

h1 to h2 and back, on the fabric that this kernel can build. `share_p_value`: the chi-square test that all spines are
equally likely. `moved_ports`: ports that name another spine when asked again from a new socket. `same_ports_fraction`:
ports that take the spine of the same number in both directions: 1/4 where each router chooses for itself.
`counter_mismatch`: packets that the spine's counters did not see of those sent from the ports that discovery gave it.
"""

from __future__ import annotations

import os
import socket
import time
from typing import Final

from netns.ecmp import PathMap, trace_paths
from netns.fabric.netlink import in_namespace
from netns.lab import Lab
from netns.shape import Shape
from netns.topology import leaf_spine
from scripts.benches.fidelity.statistics import chi_square_sf
from scripts.benches.outcome import Round, Wanted

PORTS: Final = 256
EACH: Final = 4
ALPHA: Final = 0.01
WANTED: Final = (
    Wanted("share_p_value", ">=", ALPHA / 6),  # two directions, three seeds: Bonferroni
    Wanted("moved_ports", "<=", 0),
    Wanted("counter_mismatch", "<=", 0),
)
SETTLE_S: Final = 0.2


def measure(seed: int) -> Round:
    """One round: a fabric with its seed."""
    shape = Shape(delay_us=100, limit_packets=10_000)
    topology = leaf_spine(name=f"bench-ecmp-{os.getpid()}", shape=shape, seed=seed)
    with Lab.up(topology) as lab:
        there, again, back = (
            trace_paths(lab, source=a, destination=b, ports=PORTS)
            for a, b in (("h1", "h2"), ("h1", "h2"), ("h2", "h1"))
        )
        mismatch = _counter_mismatch(lab, there)
    first, second, reverse = (_spine_of(path_map) for path_map in (there, again, back))
    return Round(
        seed,
        {
            "share_p_value": min(_p_value(there), _p_value(back)),
            "moved_ports": sum(second.get(port) != spine for port, spine in first.items()) + PORTS - len(first),
            "same_ports_fraction": sum(reverse.get(port) == spine for port, spine in first.items()) / PORTS,
            "counter_mismatch": mismatch,
        },
    )


def _spine_of(path_map: PathMap) -> dict[int, str]:
    return {port: names[0] for port, names in path_map.seen.items() if len(set(names)) == 1}


def _p_value(path_map: PathMap) -> float:
    expected = PORTS / len(path_map.spines)
    counts = [share * PORTS for share in path_map.shares.values()]
    statistic = sum((count - expected) ** 2 / expected for count in counts)
    return chi_square_sf(statistic, degrees=len(counts) - 1)


def _counter_mismatch(lab: Lab, path_map: PathMap) -> int:
    """Send from each spine's ports in turn; packets that did not go up to that spine."""
    missing = 0
    for spine in path_map.spines:
        ports = [port for port, name in _spine_of(path_map).items() if name == spine]
        before = _towards(lab, spine)
        _send(lab, ports)
        time.sleep(SETTLE_S)
        missing += abs(EACH * len(ports) - (_towards(lab, spine) - before))
    return missing


def _towards(lab: Lab, spine: str) -> int:
    return lab.counters()[f"leaf1-{spine}"]["ab"]["packets"]


def _send(lab: Lab, ports: list[int]) -> None:
    # To the port of the probes: it is part of what is hashed.
    target = (lab.address("h2"), 33434)
    for port in ports:
        with in_namespace(lab.netns("h1"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
            sender.bind((lab.address("h1"), port))
            for _ in range(EACH):
                try:
                    sender.sendto(b"scripts/bench ecmp", target)
                except ConnectionRefusedError:
                    sender.sendto(b"scripts/bench ecmp", target)
