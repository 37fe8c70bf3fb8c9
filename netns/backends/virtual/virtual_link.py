"""One direction of a link in virtual time, and what travels on it.

A packet's way through the fabric is the tuple of lanes of its flow. On each it is lost while the lane is down, passes
at once where there is no shape, and else enters netem's model (netns/netem/queue.py), which says when it leaves. A lane
that goes down loses what it holds as well: a cut cable is silent at both ends. A node that dies takes all its lanes
down.

One entry of the agenda stands for a whole lane: the departure of the packet that leaves next. With jitter and no rate
a later packet may overtake and set an earlier entry; the entry that it replaced finds `_due_at_ns` changed, and does
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from netns.backends.virtual.event_queue import EventQueue
from netns.netem.packet_ops import Draw
from netns.netem.queue import Netem
from netns.netem.shape import Shape

NEVER_NS = 2**63

Fate = Literal["queued", "left", "lost", "overlimit", "blackholed"]


class Record(NamedTuple):
    """What a trace says of one packet at one lane."""

    at_ns: int
    fate: Fate
    """`queued`: taken by the lane; `left`: out at its far end; the others: dropped by draw, full queue, dead link."""
    link: str
    """FROM>TO."""
    packet: int
    """Its number, in the order of sending."""
    flow: str
    length_bytes: int
    marked: bool


@dataclass(slots=True, eq=False)
class Flow:
    """All packets with one 4-tuple: they take one way, as long as no link loses or gets back its carrier."""

    source: str
    source_port: int
    destination: str
    destination_port: int
    links: tuple[VirtualLink, ...] = ()
    inbox: Inbox = field(default_factory=lambda: Inbox([]))
    """Where its packets lie on arrival: the destination host's."""

    def __str__(self) -> str:
        return f"{self.source}:{self.source_port}>{self.destination}:{self.destination_port}"


class Inbox:
    """What has arrived at one host at this moment. Entered in `filled`, the fabric's list, while it is not empty."""

    __slots__ = ("corrupted", "filled", "packets", "receive")

    def __init__(self, filled: list[Inbox]) -> None:
        self.filled = filled
        self.packets: list[Packet] = []
        self.corrupted = 0
        """Packets that came with a wrong checksum."""
        self.receive: Callable[[list[Packet], int], None] | None = None
        """The station; without one a host swallows everything."""

    def receive_packet(self, packet: Packet) -> None:
        """Keep a packet for the end of the moment."""
        if packet.corrupted:
            self.corrupted += 1
            return
        if not self.packets:
            self.filled.append(self)
        self.packets.append(packet)

    def deliver(self, now_ns: int) -> None:
        """Give the station what there is, as one batch."""
        packets, self.packets = self.packets, []
        if self.receive is not None:
            self.receive(packets, now_ns)


class Packet:
    """What crosses the fabric. `content` is the stations' own affair; `marked` is the CE bit.

    A `corrupted` one has a bit flipped somewhere: its checksum fails where it arrives, and no station sees it.
    """

    __slots__ = ("content", "corrupted", "flow", "hop", "length_bytes", "links", "marked", "number")

    def __init__(self, flow: Flow, *, number: int, length_bytes: int, content: Any) -> None:
        self.flow = flow
        self.links = flow.links  # its own: it stays on them when the flow gets others
        self.number = number
        self.length_bytes = length_bytes
        self.content = content
        self.marked = False
        self.corrupted = False
        self.hop = 0

    def copy(self) -> Packet:
        """The same packet once more, where this one is."""
        twin = Packet(self.flow, number=self.number, length_bytes=self.length_bytes, content=self.content)
        twin.marked, twin.corrupted, twin.hop, twin.links = self.marked, self.corrupted, self.hop, self.links
        return twin


class _PacketOps:
    """What netem does to packets of the virtual backend, all of which can be marked."""

    def length_bytes(self, packet: Packet) -> int:
        return packet.length_bytes

    def copied(self, packet: Packet) -> Packet:
        return packet.copy()

    def corrupted(self, packet: Packet, *, draw: Draw) -> Packet:
        """Which bit makes no difference, but what follows takes the same draws as on the relay."""
        draw()
        draw()
        twin = packet.copy()
        twin.corrupted = True
        return twin

    def marked(self, packet: Packet) -> Packet:
        packet.marked = True
        return packet


_PACKET_OPS = _PacketOps()


class VirtualLink:
    """One direction of a link. Counters: packets and bytes that left, packets marked and blackholed."""

    __slots__ = (
        "_due_at_ns",
        "_events",
        "_seed",
        "_threshold_ns",
        "blackholed",
        "bytes",
        "down",
        "left_at_ns",
        "longest_bytes",
        "marked",
        "name",
        "netem",
        "observe",
        "packets",
    )

    def __init__(self, name: str, *, shape: Shape | None, seed: int, agenda: EventQueue) -> None:
        self.name = name
        self.netem: Netem[Packet] | None = None
        self.observe: Callable[[Record], None] | None = None
        self.down = 0
        """How many reasons there are for it to be down: its own and its ends'."""
        self.longest_bytes: int | None = None
        """On the wire; longer packets vanish. None: the fabric's MTU, which senders keep to."""
        self.packets = 0
        self.bytes = 0
        self.marked = 0
        self.blackholed = 0
        self.left_at_ns = -1
        """When a packet last left; -1 if none has."""
        self._events = agenda
        self._due_at_ns = NEVER_NS
        self._seed = seed
        self._threshold_ns: int | None = None
        if shape is not None:
            self.reshape(shape)

    def reshape(self, shape: Shape) -> None:
        """Change what the lane does to packets; those that it holds keep their departure."""
        if self.netem is None:
            self.netem = Netem(shape, seed=self._seed, surgeon=_PACKET_OPS)
        elif self.netem.shape != shape:
            self.netem.reshape(shape)
        threshold_us = shape.ce_threshold_us
        self._threshold_ns = None if threshold_us is None else round(threshold_us * 1000)

    @property
    def wait_ns(self) -> int:
        """How long a packet that came now would queue, beyond the delay and its own time on the wire."""
        return 0 if self.netem is None else self.netem.wait_ns(self._events.now_ns)

    def transmit(self, packet: Packet, now_ns: int) -> None:
        """Decide what becomes of a packet that reaches the lane."""
        if self.down or (self.longest_bytes is not None and packet.length_bytes > self.longest_bytes):
            self.blackholed += 1
            self._log("blackholed", packet)
            return
        netem = self.netem
        if netem is None:
            self._pass_on(packet, now_ns)
            return
        if self._threshold_ns is not None and netem.wait_ns(now_ns) > self._threshold_ns:
            packet.marked = True
            self.marked += 1
        if self.observe is None:
            at_ns = netem.enqueue(now_ns, packet=packet, length_bytes=packet.length_bytes)
        else:
            at_ns = self._observed_enqueue(netem, packet, now_ns)
        if at_ns is not None and at_ns < self._due_at_ns:
            self._due_at_ns = at_ns
            self._events.at(at_ns, self._depart)

    def _depart(self, now_ns: int) -> None:
        """Hand on what is due."""
        netem = self.netem
        if now_ns != self._due_at_ns or netem is None:
            return  # an entry that an overtaker replaced
        while (due := netem.dequeue(now_ns)) is not None:
            packet = due[1]
            if self.down:
                self.blackholed += 1
                self._log("blackholed", packet)
            else:
                self._pass_on(packet, now_ns)
        next_at_ns = netem.next_at_ns
        if next_at_ns is None:
            self._due_at_ns = NEVER_NS
        else:
            self._due_at_ns = next_at_ns
            self._events.at(next_at_ns, self._depart)

    def _pass_on(self, packet: Packet, now_ns: int) -> None:
        """Let a packet out at the far end, into the next lane or the destination's inbox."""
        self.packets += 1
        self.bytes += packet.length_bytes
        self.left_at_ns = now_ns
        if self.observe is not None:
            self._log("left", packet)
        lanes = packet.links
        packet.hop = hop = packet.hop + 1
        if hop < len(lanes):
            lanes[hop].transmit(packet, now_ns)
        else:
            packet.flow.inbox.receive_packet(packet)

    def _observed_enqueue(self, netem: Netem[Packet], packet: Packet, now_ns: int) -> int | None:
        lost = netem.dropped
        at_ns = netem.enqueue(now_ns, packet=packet, length_bytes=packet.length_bytes)
        self._log("queued" if at_ns is not None else "lost" if netem.dropped > lost else "overlimit", packet)
        return at_ns

    def _log(self, fate: Fate, packet: Packet) -> None:
        if self.observe is not None:
            now_ns = self._events.now_ns
            self.observe(
                Record(now_ns, fate, self.name, packet.number, str(packet.flow), packet.length_bytes, packet.marked)
            )
