"""Two protocol cores and a network between them, in virtual time: the same seed gives the same run.

A path is hashed to one of the links; a link has the shape model of the fabric (delay, rate, loss, limit), and on top of
it duplicates and reorders at given rates. Payload is copied from the sender's region to the receiver's.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from random import Random
from typing import cast

import numpy as np
import numpy.typing as npt

from netns.netem.queue import Netem
from netns.netem.shape import Shape
from srd.proto.base.security import Security
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.core import EndpointCore
from srd.proto.events import Completion, Event, Extent, MessageAborted, MessageReceived, PeerEnded, PeerOpened
from srd.proto.memory import Destinations, Memory
from srd.proto.trace import Trace
from srd.proto.wire.control import Datagram
from srd.proto.wire.data import (
    HEADER,
    HEADER_BYTES,
    MAX_DATAGRAM_BYTES,
    MAX_TRAIN_PACKETS,
    VERSION,
    Burst,
    GroDatagram,
    write_headers,
)
from srd.proto.wire.protected import TAG_BYTES
from srd.secure.session import Session
from tests.nat import Nat

IP_UDP_ETHERNET_BYTES = 42
Packet = tuple[bytes, bytes]  # header (or whole control packet), payload


@dataclass
class Conditions:
    """Impairments besides the shape."""

    duplicate: float = 0.0
    reorder_s: float = 0.0  # each packet is late by up to this much
    corrupt: float = 0.0  # share of packets in which one bit is flipped, header or control packet
    largest_bytes: int = 65_507  # longer datagrams are lost, as with "do not fragment"
    largest_back_bytes: int = 65_507  # of those that b sends
    busy_s: float = 0.0  # b is a slow host: it takes what has arrived only so often
    buffer_packets: int = 1 << 30  # so many wait for that at most; more are lost


class Keys(Memory):
    """Registrations: key -> (start, length, rights). Written in `Node.target`, read in its region."""

    def __init__(self) -> None:
        self.ranges: dict[int, tuple[int, int, str]] = {}
        self.strangers: set[int] = set()  # peers to which no range belongs

    def _find(self, key: int, right: str, offset: int, length: int) -> int | None:
        start, size, rights = self.ranges.get(key, (0, 0, ""))
        allowed = right in rights and offset >= 0 and offset + length <= size
        return start + offset if allowed else None

    def local_writable(self, key: int, *, offset: int, length: int) -> int | None:
        return self._find(key, "l", offset, length)

    def remote_readable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        return None if peer in self.strangers else self._find(key, "r", offset, length)

    def remote_writable(self, key: int, *, peer: int, offset: int, length: int) -> int | None:
        return None if peer in self.strangers else self._find(key, "w", offset, length)


@dataclass
class Node:
    """One end: a core, a region to send from, a region to receive into."""

    name: str
    core: EndpointCore
    keys: Keys
    region: npt.NDArray[np.uint8]
    target: npt.NDArray[np.uint8]
    landing: npt.NDArray[np.uint8]
    landing_at: int = 0
    free: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    alive: bool = True
    full: bool = False  # no memory: packets with payload are dropped
    plenty_bytes: int | None = None  # with more than this held, memory is short; None: it never is
    held_bytes: int = 0

    def of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@cache
def noise(name: str, size_bytes: int) -> npt.NDArray[np.uint8]:
    """Bytes without any period, so that misplaced bytes show. The same in every call."""
    return np.random.default_rng(list(name.encode())).integers(0, 256, size_bytes, np.uint8)


class Network:
    """`a` and `b` over `links` links. Run it with `run(until=...)`."""

    def __init__(
        self,
        *,
        seed: int,
        shape: Shape | None = None,
        links: int = 4,
        config: ProtocolConfig | None = None,
        datagram_bytes: int = 8972,
        conditions: Conditions | None = None,
        region_bytes: int = 48 << 20,
        traces: Mapping[str, Trace] | None = None,
        security: Mapping[str, Security] | None = None,
        destinations: Mapping[str, Destinations] | None = None,
    ) -> None:
        self.now = 100.0
        self.accepts = True  # applications accept peers at once
        self.rng = Random(seed)
        self.conditions = conditions or Conditions()
        self.datagram_bytes = datagram_bytes
        shape = shape or Shape(delay_us=500)
        self.links = {
            (direction, link): Netem[tuple[int, str, str, Packet]](shape, seed=seed * 1000 + link * 2 + index)
            for link in range(links)
            for index, direction in enumerate("ab")
        }
        self.dead: set[int] = set()
        self.hash = {(direction, port): self.rng.randrange(links) for direction in "ab" for port in range(4096)}
        self.wire_packets = 0
        self._late: list[tuple[float, int, str, str, Packet]] = []
        self._serial = count()
        self.config = config or ProtocolConfig()
        self.traces = traces or {}  # by node
        self.security = security or {}  # by node; without one its packets are plain text
        self.destinations = destinations or {}  # by node; one without takes everything
        self.joins = False  # whether packets that arrive together are joined to segment trains (GRO)
        self.loses: Callable[[str, Packet], bool] | None = None  # which packets are lost, by source and packet
        self.carried: list[tuple[str, str, Packet]] = []  # source, target and packet of all that arrived
        self.keeps_carried = False
        self.on_sent: Callable[[Node, Burst | Datagram], bool | None] = lambda *_: None  # True: what it sees is lost
        self.hosts = {"a": "a", "b": "b"}  # the present address of each; it begins with the name
        self.nat: Nat | None = None  # in front of a; its external addresses are "a:PORT", too
        self.knows_sources = True  # whether a knows the addresses of its paths
        self.a = self._node("a", region_bytes)
        self.b = self._node("b", region_bytes)

    def _node(self, name: str, region_bytes: int) -> Node:
        keys = Keys()
        target, landing = np.zeros(region_bytes, np.uint8), np.zeros(2 * region_bytes, np.uint8)
        core = EndpointCore(
            self.config,
            datagram_bytes=self.datagram_bytes,
            secret=name.encode() * 16,
            new_context=lambda: self.rng.getrandbits(64),
            rng=Random(self.rng.random()),
            accepting=True,
            trace=self.traces.get(name),
            memory=keys,
            destinations=self.destinations.get(name),
            security=self.security.get(name),
            read=lambda offset, length: landing[offset : offset + length].tobytes(),
        )
        return Node(name, core, keys, noise(name, region_bytes), target, landing)

    def replace(self, name: str) -> Node:
        """Restart an end: a new core without state."""
        node = self._node(name, len(self.a.region))
        setattr(self, name, node)
        return node

    def connect(self) -> tuple[int, int]:
        """Open a peer from a to b; return both ends' numbers."""
        known = len(self.b.of(PeerOpened))
        sources = [f"a:{path}" for path in range(self.config.paths)] if self.knows_sources else []
        number = self.a.core.connect("b:0", sizes=(self.datagram_bytes,), sources=sources, now=self.now)
        self.run(until=lambda: len(self.b.of(PeerOpened)) > known and self.opened(number), seconds=5)
        opened = self.b.of(PeerOpened)[-1]
        assert isinstance(opened, PeerOpened)
        return number, opened.peer

    def opened(self, number: int) -> bool:
        """Whether this peer is open at a."""
        return any(isinstance(event, PeerOpened) and event.peer == number for event in self.a.events)

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self, *, until: Callable[[], bool] | None = None, seconds: float = 10.0) -> None:
        """Step until the condition holds, no event is left, or virtual `seconds` have passed."""
        end = self.now + seconds
        while self.now < end:
            for node in self._free_nodes():
                self._serve(node)
            if until is not None and until():
                return
            for node in self._free_nodes():  # the condition may have posted or released
                self._serve(node)
            at = self._next_at()
            if at is None or at > end:
                self.now = end
                return
            self.now = max(at, self.now)
            self._deliver()
            for node in self._free_nodes():
                if node.alive:
                    node.core.handle_timeout(self.now)

    def _free_nodes(self) -> list[Node]:
        """Return the nodes that have their turn now: a slow host's timers and packets wait for it, as what arrives."""
        return [self.a] if self._turn_at(self.now) > self.now else [self.a, self.b]

    def _turn_at(self, at: float) -> float:
        """Return the next turn of b, from a time on."""
        busy_s = self.conditions.busy_s
        return math.ceil(at / busy_s - 1e-6) * busy_s if busy_s else at

    def _serve(self, node: Node) -> None:
        if not node.alive:
            return
        self._deliver_events(node)
        while (out := node.core.poll_transmit(self.now)) is not None:
            self.transmit(node, out)
        self._deliver_events(node)

    def _deliver_events(self, node: Node) -> None:
        while (event := node.core.poll_event()) is not None:
            self._note(node, event)
            if isinstance(event, PeerOpened) and self.accepts:
                node.core.accepted(event.peer)

    @staticmethod
    def _note(node: Node, event: Event) -> None:
        node.events.append(event)
        if isinstance(event, MessageAborted | PeerEnded):
            node.held_bytes -= sum(extent.length for extent in event.released)

    def _next_at(self) -> float | None:
        nodes = [node.core.poll_timeout() for node in (self.a, self.b) if node.alive]
        if self.b.alive and nodes[-1] is not None:
            nodes[-1] = self._turn_at(nodes[-1])
        links = [at / 1e9 for link in self.links.values() if (at := link.next_at_ns) is not None]
        late = [self._late[0][0]] if self._late else []
        return min([at for at in nodes if at is not None] + links + late, default=None)

    # -- sending ------------------------------------------------------------------------------------------------

    def transmit(self, node: Node, out: Burst | Datagram) -> None:
        if self.on_sent(node, out):
            return
        source = f"{self.hosts[node.name]}:{out.path if isinstance(out, Datagram) else out.port}"
        if self.nat is not None and node is self.a:
            source = str(self.nat.outbound(source, str(out.address), now=self.now))
        if isinstance(out, Datagram):
            self._send(node.name, source, str(out.address), (out.data, b""))
            return
        payloads = list(self._payloads(node, out))
        if out.protection is not None:
            packets = self._sealed(out, payloads)
        else:
            headers = np.zeros(out.count, HEADER)
            write_headers(out, out=headers.view(np.uint8).data)
            packets = [(header.tobytes(), payload) for header, payload in zip(headers, payloads, strict=True)]
        for packet in packets:
            self._send(node.name, source, str(out.address), packet)

    @staticmethod
    def _payloads(node: Node, out: Burst) -> Iterator[bytes]:
        for index in range(out.count):
            start = index * out.segment_bytes
            size = min(out.segment_bytes, out.payload_bytes - start)
            place = out.payload_offset + start if out.payload_addresses is None else int(out.payload_addresses[index])
            yield node.region[place : place + size].tobytes() + (out.ack or b"")

    def _sealed(self, out: Burst, payloads: list[bytes]) -> list[Packet]:
        """Encrypt a burst as the transmitter does."""
        size = HEADER_BYTES + len(payloads[0]) + TAG_BYTES
        packets = memoryview(bytearray(out.count * size))
        write_headers(out, out=packets, stride=size)
        cast(Session, out.protection).seal_data(
            packets,
            [memoryview(payload) for payload in payloads],
            count=out.count,
            segment_bytes=len(payloads[0]),
            path=out.path,
            path_sequence=out.path_sequence,
            now=self.now,
        )
        return [
            (bytes(packets[at : at + HEADER_BYTES]), bytes(packets[at + HEADER_BYTES :][: len(payload) + TAG_BYTES]))
            for at, payload in zip(range(0, len(packets), size), payloads, strict=True)
        ]

    def _send(self, direction: str, source: str, target: str, packet: Packet) -> None:
        self.wire_packets += 1
        if self.loses is not None and self.loses(direction, packet):
            return
        size_bytes = len(packet[0]) + len(packet[1])
        if size_bytes > self.conditions.largest_bytes or (
            direction == "b" and size_bytes > self.conditions.largest_back_bytes
        ):
            return
        for _ in range(1 + (self.rng.random() < self.conditions.duplicate)):
            port = int((source if source.split(":")[1] != "0" else target).split(":")[1])
            link = self.hash[direction, port]
            if link in self.dead:
                continue
            item = (0, source, target, self._corrupted(packet))
            self.links[direction, link].enqueue(
                round(self.now * 1e9), packet=item, length_bytes=len(packet[0]) + len(packet[1]) + IP_UDP_ETHERNET_BYTES
            )

    def _corrupted(self, packet: Packet) -> Packet:
        if self.rng.random() >= self.conditions.corrupt:
            return packet
        head = bytearray(packet[0])
        head[self.rng.randrange(len(head))] ^= 1 << self.rng.randrange(8)
        return bytes(head), packet[1]

    # -- receiving ----------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        batches: dict[str, list[tuple[str, Packet]]] = {"a": [], "b": []}
        for (_, link_number), link in self.links.items():
            while (item := link.dequeue(round(self.now * 1e9))) is not None:
                _, (_, source, target, packet) = item
                if link_number in self.dead:
                    continue
                at = self.now + self.rng.random() * self.conditions.reorder_s
                if self.conditions.busy_s and target[0] == "b":
                    if sum(late[3][0] == "b" for late in self._late) >= self.conditions.buffer_packets:
                        continue
                    at = self._turn_at(self.now)
                heapq.heappush(self._late, (at, next(self._serial), source, target, packet))
        while self._late and self._late[0][0] <= self.now:
            _, _, source, target, packet = heapq.heappop(self._late)
            if self.nat is not None and target[0] == "a":
                inside = self.nat.inbound(target, source, now=self.now)
                target = "nobody" if inside is None else str(inside)
            if target.rpartition(":")[0] == self.hosts.get(target[0]):  # else it is for an address that nobody has
                batches[target[0]].append((source, packet))
                if self.keeps_carried:
                    self.carried.append((source, target, packet))
        for name, batch in batches.items():
            node = self.a if name == "a" else self.b
            if batch and node.alive:
                self.arrive(node, batch)

    def arrive(self, node: Node, batch: list[tuple[str, Packet]]) -> None:
        data = [(source, packet) for source, packet in batch if packet[0][1] == 1 and len(packet[0]) == HEADER_BYTES]
        if node.name in self.security:
            data = [(source, opened) for source, packet in data if (opened := self._opened(node, packet)) is not None]
        controls = [(p[0] + p[1], s, self.now) for s, p in batch if not (p[0][1] == 1 and len(p[0]) == HEADER_BYTES)]
        dropped = {context_of(packet) for _, packet in data if node.full and packet[1]}
        data = [(source, packet) for source, packet in data if not (node.full and packet[1])]
        # What was decrypted is described together only if it has the same keys.
        keys = context_of if node.name in self.security else lambda _packet: 0
        trains = self._trains(data, keys) if self.joins else [[packet] for packet in data]
        arrivals = [self._land(node, train) for train in trains]
        scarce = node.plenty_bytes is not None and node.held_bytes > node.plenty_bytes
        result = node.core.handle_packets(
            arrivals, controls=controls, no_memory=dropped, low_region=0 if scarce else None, now=self.now
        )
        node.held_bytes += sum(extent.length for extent in result.kept)
        for placed in result.copies:
            payload = node.landing[placed.region_offset : placed.region_offset + placed.length]
            node.target[placed.target : placed.target + placed.length] = payload

    def _opened(self, node: Node, packet: Packet) -> Packet | None:
        """Decrypt a data packet as the receive queue does."""
        header, sealed = bytearray(HEADER_BYTES), packet[1]
        session = cast("Session | None", node.core.protections.get(context_of(packet)))
        if session is None or packet[0][0] != VERSION or len(sealed) < TAG_BYTES:
            return None
        out = bytearray(len(sealed) - TAG_BYTES)
        is_new = session.open_data_untrusted(
            memoryview(packet[0] + sealed), out=memoryview(out), header=memoryview(header), now=self.now
        )
        return (bytes(header), bytes(out)) if is_new else None

    @staticmethod
    def _trains(data: list[tuple[str, Packet]], keys: Callable[[Packet], int]) -> list[list[tuple[str, Packet]]]:
        """Join neighbours from one source and with the same keys, of equal size but for the last."""
        trains: list[list[tuple[str, Packet]]] = []
        for source, packet in data:
            size_bytes = len(packet[1])
            if trains and source == trains[-1][0][0] and keys(packet) == keys(trains[-1][0][1]):
                train = trains[-1]
                first, last = len(train[0][1][1]), len(train[-1][1][1])
                total = (len(train) + 1) * (first + HEADER_BYTES)
                if size_bytes <= first == last and len(train) < MAX_TRAIN_PACKETS and total <= MAX_DATAGRAM_BYTES:
                    train.append((source, packet))
                    continue
            trains.append([(source, packet)])
        return trains

    def _land(self, node: Node, train: list[tuple[str, Packet]]) -> GroDatagram:
        source, headers = train[0][0], b"".join(header for _, (header, _) in train)
        payload = b"".join(payload for _, (_, payload) in train)
        if node.landing_at + len(payload) > len(node.landing):
            node.landing_at = 0
        offset = node.landing_at
        node.landing[offset : offset + len(payload)] = np.frombuffer(payload, np.uint8)
        node.landing_at += len(payload)
        return GroDatagram(
            headers=memoryview(headers),
            count=len(train),
            payload_offset=offset,
            payload_bytes=len(payload),
            segment_bytes=len(train[0][1][1]),
            address=source,
            received_at=self.now,
            context=context_of(train[0][1]) if node.name in self.security else None,
        )


def context_of(packet: Packet) -> int:
    """Return the context in a packet's prefix."""
    return int.from_bytes(packet[0][8:16], "big")


def content(node: Node, extents: tuple[Extent, ...]) -> bytes:
    """Return the bytes of a message from where they landed."""
    return b"".join(node.landing[f.region_offset : f.region_offset + f.length].tobytes() for f in extents)


def release(node: Node, message: MessageReceived, *, now: float) -> None:
    """Release a message and its credit."""
    node.held_bytes -= message.length
    node.core.release(message.peer, size_bytes=message.length, messages=1, now=now)


def received(node: Node) -> list[MessageReceived]:
    return [event for event in node.events if isinstance(event, MessageReceived)]


def completed(node: Node) -> list[Completion]:
    return [event for event in node.events if isinstance(event, Completion)]


def ended(node: Node) -> list[PeerEnded]:
    return [event for event in node.events if isinstance(event, PeerEnded)]
