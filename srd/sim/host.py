"""One protocol core at one host of the virtual fabric: the counterpart of `srd.io`, with virtual time for sockets.

Rules.
1. The host takes no time. Packets that arrive at the same time are one batch for the core, and the packets that the
   core then sends leave at that time. Received messages are released when they are delivered.
2. Payload is not transferred; headers are, as encoded bytes. A packet's content is the `GroDatagram` that the other
   core receives (data), or the bytes of the packet (control).
3. An address of the core is (IP address, port). Path p has source port `port` + p.

The core's clock (`HostClock`) starts at EPOCH_S, because 0 means "never" to some of its timers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from mypy_extensions import mypyc_attr

from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.virtual_link import Packet, PacketFlow
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.core import EndpointCore
from srd.proto.events import Completion, Event, MessageReceived, PeerEnded, PeerOpened
from srd.proto.memory import Memory
from srd.proto.send.sender import Sender
from srd.proto.wire.control import Datagram
from srd.proto.wire.data import HEADER_BYTES, Burst, GroDatagram, write_headers
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest

EPOCH_S: Final = 100.0
PORT: Final = 49152
IP_UDP_BYTES: Final = 28
WIRE_OVERHEAD_BYTES: Final = 42
"""Ethernet, IPv4 and UDP headers of a datagram; link rates include the Ethernet header."""

SocketAddress = tuple[str, int]


class HostClock:
    """The clock of one host: EPOCH_S at virtual time 0, unless it is off; it may drift, and `step` sets it."""

    def __init__(self, *, offset_s: float = 0.0, drift_ppm: float = 0.0) -> None:
        self._epoch_s = EPOCH_S + offset_s
        self._rate = (1 + drift_ppm * 1e-6) * 1e-9  # of its seconds per nanosecond of virtual time

    def step(self, by_s: float) -> None:
        """Set the clock forward by so many seconds, or back."""
        self._epoch_s += by_s

    def read(self, now_ns: int) -> float:
        """Return its time in seconds at a virtual time."""
        return self._epoch_s + now_ns * self._rate

    def reached_at_ns(self, at: float) -> int:
        """Return the virtual time at which it shows `at`, or the first nanosecond after that."""
        return math.ceil((at - self._epoch_s) / self._rate)


class DeliveredMessage(NamedTuple):
    """A message that was delivered."""

    at_ns: int
    peer: int
    immediate: int
    length: int


@mypyc_attr(allow_interpreted_subclasses=True)  # a simulation may have hosts of its own
class SimHost:
    """A simulated host with an SRD endpoint, attached to `fabric`; call `serve` after commands such as `post`."""

    def __init__(
        self, fabric: VirtualFabric, host: str, *, config: ProtocolConfig, seed: int, memory: Memory | None = None
    ) -> None:
        self.host = host
        self.address: SocketAddress = (fabric.address(host), PORT)
        self.deliveries: list[DeliveredMessage] = []
        self.completions: dict[int, tuple[int, Status]] = {}
        """Completion time in ns and status, by request."""
        self.ended: list[PeerEnded] = []
        self.peers: dict[SocketAddress, int] = {}
        """Numbers of the open peers, by the other end's address."""
        self.on_event: Callable[[Event], None] | None = None
        """Called with every event after the host has recorded it; may give commands."""
        self.loses: Callable[[Burst, int], bool] | None = None
        """Called with burst and index of each data packet; returns whether to drop it before it reaches the fabric."""
        self.clock = HostClock()
        """May be replaced before the first peer is opened."""
        self.datagram_bytes = fabric.topology.mtu - IP_UDP_BYTES
        self.payload_bytes = self.datagram_bytes - HEADER_BYTES
        self._fabric = fabric
        self._config = config
        self._registered = memory
        self._rng = Random(f"{seed}/{host}")  # noqa: S311 - a simulation's random numbers, reproducible
        self.core = self._new_core()
        self._flows: dict[tuple[SocketAddress, int], PacketFlow] = {}
        self._requests = 0
        self._wake_at_ns = 0  # time of the earliest wake-up in the event queue; 0: none
        fabric.attach(host, self._receive)

    def _new_core(self) -> EndpointCore:
        return EndpointCore(
            self._config,
            datagram_bytes=self.datagram_bytes,
            secret=self._rng.randbytes(16),
            new_context=lambda: self._rng.getrandbits(64),
            rng=Random(self._rng.random()),  # noqa: S311 - as above
            accepting=True,
            memory=self._registered,
            read=self._reader(),
        )

    def _reader(self) -> Callable[[int, int], bytes] | None:
        """Return what reads the memory that payload lands in; None: there is none, so that no ACKs go with data."""
        return None

    # -- commands -----------------------------------------------------------------------------------------------

    def connect(self, address: SocketAddress) -> int:
        """Start to open a peer; return its number."""
        return self.core.connect(address, sizes=(self.datagram_bytes,), now=self.now)

    def peer_of(self, host: str) -> int:
        """Return the newest peer at this IP address; its port depends on which of its HELLOs was answered."""
        return next(number for (address, _), number in reversed(self.peers.items()) if address == host)

    def senders(self) -> list[Sender]:
        """Return the sending halves of the open peers."""
        return [self.core.peer(number).sender for number in self.peers.values()]

    def post(self, peer: int, *, length: int, immediate: int | None = 0, **work_request: Any) -> int:
        """Post a request with the arguments of `EndpointCore.post`; return its number."""
        self._requests += 1
        self.core.post(peer, WorkRequest(request=self._requests, length=length, immediate=immediate, **work_request))
        return self._requests

    @property
    def now(self) -> float:
        """The core's time in seconds."""
        return self.clock.read(self._fabric.now_ns)

    # -- the loop -----------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Handle events, send what the core allows, and arm the timer."""
        now, core = self.now, self.core
        self._take_events(now)
        while (out := core.poll_transmit(now)) is not None:
            if isinstance(out, Burst):
                self._send_burst(out)
            else:
                self._send_control(out)
        self._take_events(now)
        at = core.poll_timeout()
        if at is not None:
            self._wake_by(self.clock.reached_at_ns(at))

    def _wake_by(self, at_ns: int) -> None:
        at_ns = max(at_ns, self._fabric.now_ns + 1)  # rounding may give the current time, or an earlier one
        if not self._wake_at_ns or at_ns < self._wake_at_ns:
            self._wake_at_ns = at_ns
            self._fabric.at(at_ns, self._wake)

    def _wake(self, now_ns: int) -> None:
        if now_ns != self._wake_at_ns:
            return  # superseded by an earlier wake-up
        self._wake_at_ns = 0
        self.core.handle_timeout(self.now)
        self.serve()

    def _take_events(self, now: float) -> None:
        core = self.core
        while (event := core.poll_event()) is not None:
            match event:
                case MessageReceived():
                    self._deliver(event, now=now)
                case Completion():
                    self.completions[event.request] = (self._fabric.now_ns, event.status)
                case PeerOpened():
                    core.accepted(event.peer)
                    self.peers[event.address] = event.peer
                case PeerEnded():
                    self.ended.append(event)
            if self.on_event is not None:
                self.on_event(event)

    def _deliver(self, message: MessageReceived, *, now: float) -> None:
        number = message.immediate or 0  # every message has an immediate
        self.deliveries.append(DeliveredMessage(self._fabric.now_ns, message.peer, number, message.length))
        self.core.release(message.peer, size_bytes=message.length, messages=1, now=now)

    # -- packets ------------------------------------------------------------------------------------------------

    def _flow(self, address: SocketAddress, path: int) -> PacketFlow:
        flow = self._flows.get((address, path))
        if flow is None:
            source, port = self.address
            flow = self._flows[address, path] = self._fabric.flow(
                source, source_port=port + path, destination=address[0], destination_port=address[1]
            )
        return flow

    def _send_control(self, out: Datagram) -> None:
        flow = self._flow(out.address, out.path)
        self._fabric.send(flow, length_bytes=len(out.data) + WIRE_OVERHEAD_BYTES, content=out.data)

    def _send_burst(self, out: Burst) -> None:
        flow, send, loses = self._flow(out.address, out.port), self._fabric.send, self.loses
        address = (flow.source, flow.source_port)
        headers = memoryview(bytearray(out.count * HEADER_BYTES))
        write_headers(out, out=headers)
        left = out.payload_bytes
        for index in range(out.count):
            size = min(out.segment_bytes, left)
            left -= size
            if loses is not None and loses(out, index):
                continue
            arrival = GroDatagram(
                headers=headers[index * HEADER_BYTES : (index + 1) * HEADER_BYTES],
                count=1,
                payload_offset=0,
                payload_bytes=size,
                segment_bytes=size,
                address=address,
                received_at=0.0,
            )
            send(flow, length_bytes=size + HEADER_BYTES + WIRE_OVERHEAD_BYTES, content=arrival)

    def _receive(self, packets: list[Packet], _now_ns: int) -> None:
        now, arrivals, controls = self.now, list[GroDatagram](), list[tuple[bytes, SocketAddress, float]]()
        for packet in packets:
            content = packet.content
            if isinstance(content, GroDatagram):
                content.received_at, content.ecn_ce = now, packet.marked
                arrivals.append(content)
            else:
                controls.append((content, (packet.flow.source, packet.flow.source_port), now))
        self.core.handle_packets(arrivals, controls=controls, now=now)
        self.serve()
