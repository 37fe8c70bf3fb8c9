"""Streams between hosts, with a constant number of messages outstanding, and what comes of one in some time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from netns.backends.virtual.virtual_link import VirtualLink
from netns.topology.model import Topology
from srd.proto.config import ProtocolConfig
from srd.sim.host import HostClock
from srd.sim.simulation import Connection, Simulation
from srd.sim.stream import Stream

MESSAGE_BYTES: Final = 1 << 20
OUTSTANDING: Final = 24
"""Outstanding messages: 24 MiB, several times what most fabrics hold, and less than the receive window."""


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
    ends: tuple[str, str],
    message_bytes: int = MESSAGE_BYTES,
    outstanding: int = OUTSTANDING,
    config: ProtocolConfig | None = None,
    clocks: Mapping[str, HostClock] | None = None,
) -> Bulk:
    """Start a stream from the one end to the other; with the default settings if no `config` is given.

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
