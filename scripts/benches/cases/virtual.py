"""Virtual: packets that the virtual backend forwards over links per second of CPU time, without a protocol.

2 leaves, 4 spines, 4 hosts per leaf, every link shaped (100 Gbit/s, 5 us); each host sends 9,014-byte packets at 90 %
of its rate to a host on the other leaf, from 16 ports in turn, for 10 ms of virtual time: some 100,000 packets, 4 hops
each. Set-up is not counted. The rate is per CPU time, so that other load does not matter; wall time is reported, too.

It is a program, and no scenario's file, whose figures are the same in each run and which has a transport.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.virtual_link import PacketFlow
from netns.topology.file import parse_topology
from scripts.benches.outcome import Round
from scripts.benches.reference_fabric import PACKET_BYTES
from srd.sim.experiments.fabric import with_host_ports

HOSTS: Final = 4
PORTS: Final = 16
LINK: Final = {"delay": "5us", "rate": "100gbit", "limit": 1000}
GAP_NS: Final = 801
END_NS: Final = 10_000_000


def measure(seed: int, _seconds: float) -> Round:
    sizes = {"spines": 4, "hosts_per_leaf": HOSTS, "link": LINK, "host_link": LINK}
    topology = with_host_ports(parse_topology({"leaf_spine": sizes, "seed": seed}, default_name="virtual", base=Path()))
    fabric = VirtualFabric(topology)
    for index in range(2 * HOSTS):
        other = topology.hosts[(index + HOSTS) % (2 * HOSTS)]
        _Source(fabric, [_flow(fabric, topology.hosts[index], other, port=port) for port in range(PORTS)])
    wall, processor = perf_counter(), process_time()
    fabric.run(until_ns=2 * END_NS)
    processor_s, wall_s = process_time() - processor, perf_counter() - wall
    return Round(
        seed,
        {
            "packet_hops_per_second": fabric.packet_hops / processor_s,
            "packet_hops_per_wall_second": fabric.packet_hops / wall_s,
            "packet_hops": fabric.packet_hops,
        },
    )


def _flow(fabric: VirtualFabric, source: str, destination: str, *, port: int) -> PacketFlow:
    return fabric.flow(
        fabric.address(source), source_port=port, destination=fabric.address(destination), destination_port=1
    )


class _Source:
    """Sends at a constant rate, over its flows in turn."""

    def __init__(self, fabric: VirtualFabric, flows: list[PacketFlow]) -> None:
        self._fabric = fabric
        self._flows = cycle(flows)
        fabric.at(0, self._send)

    def _send(self, now_ns: int) -> None:
        self._fabric.send(next(self._flows), length_bytes=PACKET_BYTES, content=None)
        if now_ns < END_NS:
            self._fabric.at(now_ns + GAP_NS, self._send)
