"""Check the probed spines of source ports against the counters of the links to the spines.

The probes of netns/observe/route_probe.py expire at the spines; these packets go to the destination, from the same
ports to the same port. For one spine after the other, a few packets are sent from each port that was found to use it,
and the links to the spine from the source's side must count as many, dropped ones included. Other traffic on them is
counted, too: the check needs an idle lab, and no losses before those links.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from netns.backends.kernel.netlink import in_namespace
from netns.lab.lab import Lab
from netns.observe.route_probe import PROBE_PORT, SpineMap

EACH: Final = 4
PATIENCE_S: Final = 1.0
_LOOK_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Count:
    """Packets from the ports of one spine."""

    sent: int
    seen: int
    """Counted by the links to the spine."""


def count_packets(lab: Lab, path_map: SpineMap) -> Mapping[str, Count]:
    """Send from the stable ports of a map; return spine -> packets sent for it, and packets counted there."""
    counts = {}
    for spine in path_map.spines:
        ports = [port for port, names in path_map.seen.items() if set(names) == {spine}]
        before = _seen(lab, spine, source=path_map.source)
        _send(lab, path_map, ports)
        give_up_at, sent = time.monotonic() + PATIENCE_S, EACH * len(ports)
        while (seen := _seen(lab, spine, source=path_map.source) - before) < sent and time.monotonic() < give_up_at:
            time.sleep(_LOOK_S)
        counts[spine] = Count(sent, seen)
    return counts


def disagreements(path_map: SpineMap, counts: Mapping[str, Count]) -> list[str]:
    """Return the differences between sent and counted packets, one line each."""
    return [
        f"{path_map.label}: {spine}: {count.sent} packets were sent from its ports, and its links counted {count.seen}"
        for spine, count in counts.items()
        if count.sent != count.seen
    ]


def _seen(lab: Lab, spine: str, *, source: str) -> int:
    """Return the packets on the links to the spine from neighbours that are nearer to the source."""
    distance, counters = lab.topology.distances(source), lab.counters()
    total = 0
    for link in lab.topology.links_of[spine]:
        neighbour = link.other(spine)
        if distance[neighbour] < distance[spine]:
            direction = counters[link.name]["ab" if link.b == spine else "ba"]
            total += direction["packets"] + direction["dropped"]
    return total


def _send(lab: Lab, path_map: SpineMap, ports: list[int]) -> None:
    source, destination = (
        lab.address(host, version=path_map.version) for host in (path_map.source, path_map.destination)
    )
    family = socket.AF_INET6 if path_map.version == 6 else socket.AF_INET
    for port in ports:
        made = in_namespace(lab.netns(path_map.source), lambda: socket.socket(family, socket.SOCK_DGRAM))
        with closing(made) as sender:
            sender.bind((source, port))
            for _ in range(EACH):
                sender.sendto(b"srd-lab verify --counters", (destination, PROBE_PORT))
