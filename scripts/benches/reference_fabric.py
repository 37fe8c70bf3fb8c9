"""The reference fabric: one sender and one receiver with several spines between them; and streams over any fabric.

Links between leaves and spines have 250 Mbit/s, 0.5 ms and a buffer of one bandwidth-delay product; hosts' links are
unshaped. The protocol runs with its defaults, which are made for such RTTs (2 ms).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from netns.backends.virtual.virtual_link import VirtualLink
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


def shaped_upwards(shape: Shape, *, spines: int, name: str, seed: int) -> Topology:
    """Return a fabric whose links from the leaves to the spines have this shape; those down have none."""
    topology = leaf_spine(leaves=2, spines=spines, hosts_per_leaf=1, mtu=MTU, name=name, seed=seed)
    return replace(
        topology,
        links=tuple(replace(link, shape_ab=shape) if link.a in topology.leaves else link for link in topology.links),
    )


def streams(
    simulation: Simulation,
    pairs: Iterable[tuple[str, str]],
    *,
    message_bytes: int = MESSAGE_BYTES,
    outstanding: int = OUTSTANDING,
    messages: int = 0,
) -> list[Stream]:
    """Connect hosts, and return a stream for each pair, of `messages` messages (0: endless), that has not started."""
    return [
        Stream(
            connection,
            message_bytes=message_bytes,
            outstanding=outstanding,
            messages=messages,
            now_ns=lambda: simulation.now_ns,
        )
        for connection in simulation.connect(pairs)
    ]


def bulk(
    topology: Topology,
    *,
    seed: int,
    ends: tuple[str, str] = (SENDER, RECEIVER),
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
    (stream,) = streams(simulation, [ends], message_bytes=message_bytes, outstanding=outstanding)
    stream.start()
    return Bulk(simulation, stream.connection)


@dataclass(frozen=True, slots=True)
class Span:
    """What came of a stream in some time."""

    goodput_bps: float
    """Payload that landed."""
    resent_fraction: float
    """Packets that were sent again, over all that were sent."""
    lost_fraction: float
    """Packets that were declared lost, over all that were sent."""
    waits_ns: tuple[int, ...]
    """How long a packet would have waited at the links that were looked at, at each step."""


class Bulk:
    """A simulation with one stream."""

    def __init__(self, simulation: Simulation, connection: Connection) -> None:
        self.simulation = simulation
        self.connection = connection

    @property
    def resent_fraction(self) -> float:
        """Packets that were sent again, over all that were sent since the start."""
        return self.connection.sender.retransmitted / self.connection.sender.packets

    def span(
        self,
        seconds: float,
        *,
        warm_up_s: float,
        steps: int = 1,
        links: Iterable[VirtualLink] = (),
        after_step: Callable[[int], None] = lambda _step: None,
    ) -> Span:
        """Return what comes of so many seconds after a warm-up, in steps. Raises SimulationError if a request fails."""
        self.simulation.run(seconds=warm_up_s)
        before = self._counts()
        waits_ns = list[int]()
        for step in range(steps):
            self.simulation.run(seconds=seconds / steps)
            waits_ns += [link.wait_ns for link in links]
            after_step(step)
        self.simulation.require_no_failures()
        landed_bytes, packets, resent, lost = (now - then for now, then in zip(self._counts(), before, strict=True))
        return Span(8 * landed_bytes / seconds, resent / packets, lost / packets, tuple(waits_ns))

    def _counts(self) -> tuple[int, int, int, int]:
        """Return bytes that have landed, and packets that were sent, sent again and lost."""
        sender = self.connection.sender
        lost = sum(path.counters.lost for path in sender.paths)
        return self.connection.receiver.landed_bytes, sender.packets, sender.retransmitted, lost
