"""The reference fabric: one sender and one receiver with several spines between them; and a bulk stream over it.

Links between leaves and spines have 250 Mbit/s, 0.5 ms and a buffer of one bandwidth-delay product; hosts' links are
unshaped. The protocol runs with its defaults, which are made for such RTTs (2 ms).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from netns.netem.shape import Shape
from netns.topology.model import Topology, leaf_spine, with_buffer
from scripts.benches.fabrics import MTU, PACKET_BYTES
from srd.proto.config import ProtocolConfig
from srd.proto.wire.data import HEADER_BYTES
from srd.sim.host import WIRE_OVERHEAD_BYTES, HostClock
from srd.sim.simulation import Connection, Simulation
from srd.sim.stream import Stream

RATE_BPS: Final = 250_000_000
LINK_US: Final = 500.0
RTT_S: Final = 4 * LINK_US / 1e6
LINK: Final = with_buffer(Shape(delay_us=LINK_US, rate_bps=RATE_BPS), mtu=MTU)
SENDER: Final = "h1"
RECEIVER: Final = "h2"
MESSAGE_BYTES: Final = 1 << 20
OUTSTANDING: Final = 24
"""Outstanding messages: 24 MiB, several times what any of these fabrics holds, and less than the receive window."""
PAYLOAD_FRACTION: Final = (PACKET_BYTES - WIRE_OVERHEAD_BYTES - HEADER_BYTES) / PACKET_BYTES
"""Payload as a fraction of a full packet on the wire."""


def fabric(*, spines: int, name: str, seed: int, change: Callable[[str, str], Shape] | None = None) -> Topology:
    """Return the fabric; `change(leaf, spine)` returns another shape for both directions of a link."""
    topology = leaf_spine(leaves=2, spines=spines, hosts_per_leaf=1, mtu=MTU, shape=LINK, name=name, seed=seed)
    if change is None:
        return topology
    shapes = {link.name: change(link.a, link.b) for link in topology.links if link.shaped}
    return replace(
        topology,
        links=tuple(
            replace(link, shape_ab=shapes[link.name], shape_ba=shapes[link.name]) if link.name in shapes else link
            for link in topology.links
        ),
    )


def bulk(
    topology: Topology,
    *,
    seed: int,
    message_bytes: int = MESSAGE_BYTES,
    outstanding: int = OUTSTANDING,
    config: ProtocolConfig | None = None,
    clocks: Mapping[str, HostClock] | None = None,
) -> Bulk:
    """Start a stream from sender to receiver; with the default settings if no `config` is given.

    `clocks`: of the hosts whose clocks are wrong.
    """
    simulation = Simulation(topology, config=config or ProtocolConfig(), seed=seed)
    for host, clock in (clocks or {}).items():
        simulation.sim_host(host).clock = clock
    (connection,) = simulation.connect([(SENDER, RECEIVER)])
    stream = Stream(connection, message_bytes=message_bytes, outstanding=outstanding, now_ns=lambda: simulation.now_ns)
    stream.start()
    return Bulk(simulation, connection)


class Bulk:
    """A simulation with one stream."""

    def __init__(self, simulation: Simulation, connection: Connection) -> None:
        self.simulation = simulation
        self.connection = connection

    def goodput_bps(self, *, warm_up_s: float, seconds: float) -> float:
        """Return the payload that lands in bit/s, after a warm-up. Raises BenchError if a request fails."""
        self.simulation.run(seconds=warm_up_s)
        before_bytes = self.connection.receiver.landed_bytes
        self.simulation.run(seconds=seconds)
        self.simulation.require_no_failures()
        return (self.connection.receiver.landed_bytes - before_bytes) * 8 / seconds
