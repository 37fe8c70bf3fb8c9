"""Streams between hosts, with a constant number of messages outstanding, and what comes of them in some time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from netns.backends.virtual.virtual_link import VirtualLink
from netns.topology.model import Topology
from srd.proto.config import ProtocolConfig
from srd.sim.host import HostClock
from srd.sim.simulation import Simulation
from srd.sim.stream import MessageStream

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
) -> list[MessageStream]:
    """Connect hosts, and return a stream for each pair, of `messages` messages (0: endless), that has not started."""
    return [
        MessageStream(
            connection,
            message_bytes=message_bytes,
            outstanding=outstanding,
            messages=messages,
            fabric=simulation.fabric,
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
) -> BulkSimulation:
    """Start a stream from the one end to the other; with the default settings if no `config` is given.

    `clocks`: of the hosts whose clocks are wrong.
    """
    simulation = Simulation(topology, config=config or ProtocolConfig(), seed=seed)
    for host, clock in (clocks or {}).items():
        simulation.sim_host(host).clock = clock
    (stream,) = streams(simulation, [ends], message_bytes=message_bytes, outstanding=outstanding)
    stream.start()
    return BulkSimulation(simulation, [stream])


@dataclass(frozen=True, slots=True)
class BulkFigures:
    """What came of streams in some time."""

    goodput_bps: float
    """Payload that landed."""
    landed_bytes: tuple[int, ...]
    """The same of each stream."""
    resent_fraction: float
    """Packets that were sent again, over all that were sent."""
    lost_fraction: float
    """Packets that were declared lost, over all that were sent."""
    waits_ns: tuple[int, ...]
    """How long a packet would have waited at the links that were looked at, at each step."""


class BulkSimulation:
    """A simulation with streams."""

    def __init__(self, simulation: Simulation, started: Sequence[MessageStream]) -> None:
        self.simulation = simulation
        self.connection = started[0].connection
        """The first one's."""
        self.connections = [stream.connection for stream in started]

    @property
    def resent_fraction(self) -> float:
        """Packets that were sent again, over all that were sent since the start."""
        _, packets, resent, _ = self._counts()
        return resent / packets

    @property
    def spurious_fraction(self) -> float:
        """Packets that had arrived before, over all that arrived since the start."""
        receivers = [each.receiver for each in self.connections]
        return sum(each.duplicates for each in receivers) / sum(each.packets for each in receivers)

    def span(
        self,
        seconds: float,
        *,
        warm_up_s: float,
        steps: int = 1,
        links: Iterable[VirtualLink] = (),
        after_step: Callable[[int], None] = lambda _step: None,
    ) -> BulkFigures:
        """Return what comes of so many seconds after a warm-up, in steps. Raises SimulationError if a request fails."""
        self.simulation.run(seconds=warm_up_s)
        before = self._counts()
        waits_ns = list[int]()
        for step in range(steps):
            self.simulation.run(seconds=seconds / steps)
            waits_ns += [link.wait_ns for link in links]
            after_step(step)
        self.simulation.require_no_failures()
        now = self._counts()
        landed = tuple(after - then for after, then in zip(now[0], before[0], strict=True))
        packets, resent, lost = (after - then for after, then in zip(now[1:], before[1:], strict=True))
        return BulkFigures(8 * sum(landed) / seconds, landed, resent / packets, lost / packets, tuple(waits_ns))

    def _counts(self) -> tuple[list[int], int, int, int]:
        """Return bytes that have landed of each stream, and packets that were sent, sent again and lost."""
        senders = [each.sender for each in self.connections]
        return (
            [each.receiver.landed_bytes for each in self.connections],
            sum(sender.packets for sender in senders),
            sum(sender.retransmitted for sender in senders),
            sum(path.counters.lost for sender in senders for path in sender.paths),
        )
