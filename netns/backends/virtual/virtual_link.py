"""A virtual link, which is one direction of a link in virtual time, and the packets on it.

The route of a packet is the tuple of virtual links of its flow. A virtual link drops a packet while it is down,
forwards it at once if it has no shape, and otherwise passes it to netem's model (netns/netem/queue.py), which returns
the departure time. When a link goes down it also loses the packets that it holds, as when a cable is cut. A node that
fails takes down all its virtual links.

The event queue holds one valid entry for each virtual link: the departure of the packet that leaves next. With jitter
and no rate a later packet may overtake and schedule an earlier entry. The replaced entry then finds a different
`_due_at_ns` and does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TextIO

from netns.backends.virtual.event_queue import EventQueue
from netns.netem.changes import AnyShape, effective
from netns.netem.packet_ops import Draw
from netns.netem.queue import COUNTERS, Netem
from netns.netem.shape import Shape

NEVER_NS: Final = 2**63

Fate = Literal["queued", "left", "lost", "overlimit", "blackholed"]


class PacketEvent(NamedTuple):
    """An event of one packet at one virtual link, for the event log."""

    at_ns: int
    fate: Fate
    """`queued`: entered the link; `left`: out at its far end; the others: dropped by draw, full queue, dead link."""
    link: str
    """FROM>TO."""
    packet: int
    """Its number, in order of sending."""
    flow: str
    length_bytes: int
    marked: bool


class JsonLines:
    """The event log: writes a JSON object for each event as a line of `file`; pass it to `VirtualFabric` as `observe`.

    The same run writes the same bytes, so that two logs can be compared with cmp(1).
    """

    __slots__ = ("_file",)

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, record: PacketEvent) -> None:
        """Write one line: the fields of `PacketEvent` by name."""
        self._file.write(json.dumps(record._asdict(), separators=(",", ":")) + "\n")


@dataclass(slots=True, eq=False)
class PacketFlow:
    """All packets with one 4-tuple: they take one route until a link loses or regains its carrier."""

    source: str
    source_port: int
    destination: str
    destination_port: int
    links: tuple[VirtualLink, ...] = ()
    arrivals: HostArrivals = field(default_factory=lambda: HostArrivals([]))
    """Where its packets are collected on arrival, at the destination host."""
    priority: int = 0
    """The class (802.1p) of its packets: only switches with a shared buffer heed it (lossless/)."""

    def __str__(self) -> str:
        return f"{self.source}:{self.source_port}>{self.destination}:{self.destination_port}"


class HostArrivals:
    """The packets that arrived at one host at the current time. It is in `filled`, the fabric's list, unless empty."""

    __slots__ = ("corrupted", "filled", "packets", "receive")

    def __init__(self, filled: list[HostArrivals]) -> None:
        self.filled = filled
        self.packets: list[Packet] = []
        self.corrupted = 0
        """Packets that arrived with a wrong checksum."""
        self.receive: Callable[[list[Packet], int], None] | None = None
        """The simulated host's callback; without one, packets are discarded."""

    def receive_packet(self, packet: Packet) -> None:
        """Keep a packet until the end of the current time; count and discard a corrupted one."""
        if packet.corrupted:
            self.corrupted += 1
            return
        if not self.packets:
            self.filled.append(self)
        self.packets.append(packet)

    def deliver(self, now_ns: int) -> None:
        """Deliver the collected packets, as one batch."""
        packets, self.packets = self.packets, []
        if self.receive is not None:
            self.receive(packets, now_ns)


class Packet:
    """A packet in the fabric. `content` is opaque to the fabric; `marked` is the CE bit.

    A `corrupted` packet has a flipped bit: its checksum fails at the destination host, and it is not delivered.
    """

    __slots__ = ("content", "corrupted", "flow", "hop", "length_bytes", "links", "marked", "number")

    def __init__(self, flow: PacketFlow, *, number: int, length_bytes: int, content: Any) -> None:
        self.flow = flow
        self.links = flow.links  # a copy: the packet keeps its route when the flow gets another
        self.number = number
        self.length_bytes = length_bytes
        self.content = content
        self.marked = False
        self.corrupted = False
        self.hop = 0

    def copy(self) -> Packet:
        """A duplicate of the packet, at the same hop."""
        twin = Packet(self.flow, number=self.number, length_bytes=self.length_bytes, content=self.content)
        twin.marked, twin.corrupted, twin.hop, twin.links = self.marked, self.corrupted, self.hop, self.links
        return twin


class _PacketOps:
    """Packet operations of netem for the virtual backend, where every packet can be marked."""

    def length_bytes(self, packet: Packet) -> int:
        return packet.length_bytes

    def copied(self, packet: Packet) -> Packet:
        return packet.copy()

    def corrupted(self, packet: Packet, *, draw: Draw) -> Packet:
        """Flip no particular bit, but use the same number of draws as the relay, so that later draws agree."""
        draw()
        draw()
        twin = packet.copy()
        twin.corrupted = True
        return twin

    def marked(self, packet: Packet) -> Packet:
        packet.marked = True
        return packet


_PACKET_OPS: Final = _PacketOps()


class VirtualLink:
    """One direction of a link. Counters: packets and bytes that left, packets marked and blackholed."""

    def __init__(self, name: str, *, shape: Shape | None, seed: int, events: EventQueue) -> None:
        self.name = name
        self.netem: Netem[Packet] | None = None
        self.observe: Callable[[PacketEvent], None] | None = None
        self.failures = 0
        """The number of failures that hold it down: its own and those of its ends."""
        self.longest_bytes: int | None = None
        """The longest packet on the wire; longer ones are dropped. None: the fabric's MTU, which `send` checks."""
        self.packets = 0
        self.bytes = 0
        self.marked = 0
        self.blackholed = 0
        self.left_at_ns = -1
        """When the last packet left; -1 if none has."""
        self._events = events
        self._due_at_ns = NEVER_NS
        self._seed = seed
        self._threshold_ns: int | None = None
        self.shape: AnyShape = Shape()
        """The shape, with the changes that will be taken back."""
        if shape is not None:
            self.reshape(shape)

    def reshape(self, new: AnyShape) -> None:
        """Change the shape; packets that are queued keep their departure. Raises ShapeError."""
        shape = effective(new)
        self.shape = new
        if self.netem is None:
            self.netem = Netem(shape, seed=self._seed, ops=_PACKET_OPS)
        elif self.netem.shape != shape:
            self.netem.reshape(shape)
        threshold_us = shape.ce_threshold_us
        self._threshold_ns = None if threshold_us is None else round(threshold_us * 1000)

    @property
    def wait_ns(self) -> int:
        """How long a packet that arrived now would queue, beyond the delay and its own serialisation time."""
        if self.netem is None or self._due_at_ns == NEVER_NS:  # it holds no packet: most links at most times
            return 0
        return self.netem.wait_ns(self._events.now_ns)

    def counters(self) -> dict[str, int]:
        """Return all counters, by name."""
        return {
            "packets": self.packets,
            "bytes": self.bytes,
            **(dict.fromkeys(COUNTERS, 0) if self.netem is None else self.netem.counters()),
            "blackholed": self.blackholed,
            "marked": self.marked,
        }

    def transmit(self, packet: Packet, now_ns: int) -> None:
        """Drop, forward, mark or queue a packet that reaches the link."""
        if self.failures or (self.longest_bytes is not None and packet.length_bytes > self.longest_bytes):
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
        """Forward the packets that are due."""
        netem = self.netem
        if now_ns != self._due_at_ns or netem is None:
            return  # an entry that an overtaking packet replaced
        next_at_ns: int | None = now_ns
        while next_at_ns is not None and next_at_ns <= now_ns:
            due = netem.dequeue(now_ns)
            next_at_ns = netem.next_at_ns  # of a slot that opens later, too, if nothing was due
            if due is None:
                break
            packet = due[1]
            if self.failures:
                self.blackholed += 1
                self._log("blackholed", packet)
            else:
                self._pass_on(packet, now_ns)
        if next_at_ns is None:
            self._due_at_ns = NEVER_NS
        else:
            self._due_at_ns = next_at_ns
            self._events.at(next_at_ns, self._depart)

    def _pass_on(self, packet: Packet, now_ns: int) -> None:
        """Forward a packet at the far end to the next virtual link or the destination's arrivals."""
        self.packets += 1
        self.bytes += packet.length_bytes
        self.left_at_ns = now_ns
        if self.observe is not None:
            self._log("left", packet)
        links = packet.links
        packet.hop = hop = packet.hop + 1
        if hop < len(links):
            links[hop].transmit(packet, now_ns)
        else:
            packet.flow.arrivals.receive_packet(packet)

    def _observed_enqueue(self, netem: Netem[Packet], packet: Packet, now_ns: int) -> int | None:
        lost = netem.dropped
        at_ns = netem.enqueue(now_ns, packet=packet, length_bytes=packet.length_bytes)
        self._log("queued" if at_ns is not None else "lost" if netem.dropped > lost else "overlimit", packet)
        return at_ns

    def _log(self, fate: Fate, packet: Packet) -> None:
        if self.observe is not None:
            now_ns = self._events.now_ns
            self.observe(
                PacketEvent(
                    now_ns, fate, self.name, packet.number, str(packet.flow), packet.length_bytes, packet.marked
                )
            )
