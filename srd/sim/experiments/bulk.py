"""Streams of messages between hosts, and what comes of them in some time.

A constant number of messages is outstanding, or they have a constant rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.virtual_link import VirtualLink
from srd.proto.events import Completion, Event
from srd.proto.wire.status import Status
from srd.sim.host import DeliveredMessage
from srd.sim.simulation import Connection, Simulation

MESSAGE_BYTES: Final = 1 << 20
OUTSTANDING: Final = 24
"""Outstanding messages: 24 MiB, several times what most fabrics hold, and less than the receive window."""


class MessageStream:
    """Posts a message for each that succeeds. Message n has immediate n and is posted at `posted_at_ns[n]`.

    At most one stream per source, because it handles the host's events.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        message_bytes: int,
        outstanding: int,
        fabric: VirtualFabric,
        messages: int = 0,
    ) -> None:
        """Create a stream of `messages` messages in all; 0: endless."""
        self.connection = connection
        self.posted_at_ns: list[int] = []
        self._message_bytes = message_bytes
        self._outstanding = outstanding
        self._messages = messages
        self._fabric = fabric
        connection.source.on_event = self._take

    def start(self) -> None:
        """Post the first messages."""
        for _ in range(self._outstanding):
            self._post()
        self.connection.source.serve()

    def offer(self, *, every_ns: int, until_ns: int) -> None:
        """Post a message so often from now on, whatever completes; of a stream with no outstanding ones."""
        for at_ns in range(self._fabric.now_ns, until_ns, every_ns):
            self._fabric.at(at_ns, self._offer)

    def _offer(self, _now_ns: int) -> None:
        self._post()
        self.connection.source.serve()

    def delivered(self) -> Iterator[DeliveredMessage]:
        """Yield what was delivered of it."""
        for delivery in self.connection.destination.deliveries:
            if delivery.peer == self.connection.remote_peer:
                yield delivery

    def _post(self) -> None:
        if not self._messages or len(self.posted_at_ns) < self._messages:
            self.connection.post(length=self._message_bytes, immediate=len(self.posted_at_ns))
            self.posted_at_ns.append(self._fabric.now_ns)

    def _take(self, event: Event) -> None:
        if self._outstanding and isinstance(event, Completion) and event.status is Status.OK:
            self._post()


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
        self.streams = started
        self.connections = [stream.connection for stream in started]
        self.senders = [stream.connection.sender for stream in started]
        """These are there when their peers have ended, too."""
        self.receivers = [stream.connection.receiver for stream in started]

    @property
    def resent_fraction(self) -> float:
        """Packets that were sent again, over all that were sent since the start."""
        _, packets, resent, _ = self._counts()
        return resent / packets

    @property
    def spurious_fraction(self) -> float:
        """Packets that had arrived before, over all that arrived since the start."""
        return sum(each.duplicates for each in self.receivers) / sum(each.packets for each in self.receivers)

    def span(self, seconds: float, *, steps: int = 1, links: Sequence[VirtualLink] = ()) -> BulkFigures:
        """Return what comes of so many seconds from now on, in steps."""
        before = self._counts()
        waits_ns = list[int]()
        for _ in range(steps):
            self.simulation.run(seconds=seconds / steps)
            waits_ns += [link.wait_ns for link in links]
        now = self._counts()
        landed = tuple(after - then for after, then in zip(now[0], before[0], strict=True))
        packets, resent, lost = (after - then for after, then in zip(now[1:], before[1:], strict=True))
        sent = max(packets, 1)  # with failures it may be none
        return BulkFigures(8 * sum(landed) / seconds, landed, resent / sent, lost / sent, tuple(waits_ns))

    def _counts(self) -> tuple[list[int], int, int, int]:
        """Return bytes that have landed of each stream, and packets that were sent, sent again and lost."""
        return (
            [receiver.landed_bytes for receiver in self.receivers],
            sum(sender.packets for sender in self.senders),
            sum(sender.retransmitted for sender in self.senders),
            sum(path.counters.lost for sender in self.senders for path in sender.paths),
        )
