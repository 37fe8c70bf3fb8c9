"""A host's network card on the virtual fabric: it carries the flows of the models.

The card's port asks for packets when it is free (netns/backends/virtual/lossless/egress_port.py), so that a pause stops
the flows and not a queue behind them. The flows of a card take turns. On fabrics without such ports it sends what the
flows allow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.lossless.egress_port import EgressPort
from netns.backends.virtual.lossless.profile import CONTROL
from netns.backends.virtual.virtual_link import Packet, PacketFlow
from srd.sim.models.dcqcn import Notifications
from srd.sim.models.flow import NEVER_NS, FlowReceiver, FlowReply, FlowSender, ReplyKind

FIRST_PORT: Final = 49152
PORTS: Final = 16384
CNP_BYTES: Final = 74
"""RoCEv2, annex A17: Ethernet 14, IPv4 20, UDP 8, BTH 12, 16 reserved, ICRC 4."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How a transport's packets look on the wire. Lengths include the Ethernet header, as in all of the fabric."""

    payload_bytes: int
    """Of a full packet."""
    overhead_bytes: int
    """Headers of a packet of data."""
    reply_bytes: int
    port: int
    """UDP's or TCP's, of the destination."""
    priority: int
    """The class of data and replies (802.1p)."""

    def packets(self, size_bytes: int) -> int:
        """Return how many packets carry so many bytes."""
        return max(-(-size_bytes // self.payload_bytes), 1)


class NicFlow:
    """One flow: `size_bytes` from one card to another. `done_at_ns` is when the last byte arrived; -1: not yet."""

    __slots__ = (
        "back", "done", "done_at_ns", "forth", "framing", "notifications", "notify", "receiver", "sender", "size_bytes",
    )  # fmt: skip

    def __init__(
        self,
        *,
        size_bytes: int,
        framing: Framing,
        sender: FlowSender,
        receiver: FlowReceiver,
        notifications: Notifications | None,
        routes: tuple[PacketFlow, PacketFlow, PacketFlow],
        done: Callable[[int], None] | None,
    ) -> None:
        """`routes`: of data, of replies, of notifications. `done` is called with the time in ns."""
        self.size_bytes = size_bytes
        self.framing = framing
        self.sender = sender
        self.receiver = receiver
        self.notifications = notifications
        self.forth, self.back, self.notify = routes
        self.done = done
        self.done_at_ns = -1

    def length_bytes(self, psn: int) -> int:
        """Return a packet's length on the wire; the last one may be shorter."""
        payload = min(self.framing.payload_bytes, self.size_bytes - psn * self.framing.payload_bytes)
        return self.framing.overhead_bytes + payload


class Data:
    """The content of a packet of data."""

    __slots__ = ("flow", "psn", "transmission")

    def __init__(self, flow: NicFlow, psn: int, transmission: int) -> None:
        self.flow = flow
        self.psn = psn
        self.transmission = transmission


class Nic:
    """The card of one host."""

    def __init__(self, fabric: VirtualFabric, host: str) -> None:
        """Attach it. Raises BackendError if the host has a simulated host already."""
        self.host = host
        self.address = fabric.address(host)
        self._fabric = fabric
        self._port_of: dict[str, int] = {}
        self.flows: list[NicFlow] = []
        """All that were made here."""
        self._sending: list[NicFlow] = []
        self._turn = 0
        self._wake_at_ns = 0
        port = fabric.links[host, fabric.topology.switch_of(host)]
        self.port = port if isinstance(port, EgressPort) else None
        if self.port is not None:
            self.port.on_ready = self._pump
        fabric.attach(host, self._receive)

    def flow(
        self,
        destination: Nic,
        *,
        size_bytes: int,
        framing: Framing,
        sender: FlowSender,
        receiver: FlowReceiver,
        notifications: Notifications | None = None,
        done: Callable[[int], None] | None = None,
    ) -> NicFlow:
        """Return a flow to another card, which `start` starts. Flows to one card have one source port, as a QP."""
        port = self._port_of.setdefault(destination.host, FIRST_PORT + len(self._port_of) % PORTS)
        make = self._fabric.flow
        here, there = self.address, destination.address
        forth = make(here, source_port=port, destination=there, destination_port=framing.port)
        back = make(there, source_port=framing.port, destination=here, destination_port=port)
        notify = make(there, source_port=framing.port + 1, destination=here, destination_port=port)
        forth.priority = back.priority = framing.priority
        notify.priority = CONTROL
        made = NicFlow(
            size_bytes=size_bytes, framing=framing, sender=sender, receiver=receiver, notifications=notifications,
            routes=(forth, back, notify), done=done,
        )  # fmt: skip
        self.flows.append(made)
        return made

    def start(self, flow: NicFlow) -> None:
        """Begin to send now."""
        self._sending.append(flow)
        self._pump(self._fabric.now_ns)

    def _pump(self, now_ns: int) -> None:
        """Send what flows and port allow; then wait for the earliest time at which something changes by itself."""
        at_ns = NEVER_NS
        while (flow := self._next_flow(now_ns)) is not None:
            psn = flow.sender.take(now_ns)
            content = Data(flow, psn, flow.sender.sent - 1)
            self._fabric.send(flow.forth, length_bytes=flow.length_bytes(psn), content=content)
        for flow in self._sending:
            ready_at = flow.sender.ready_at(now_ns)
            at_ns = min(at_ns, flow.sender.timeout_at, ready_at if ready_at > now_ns else NEVER_NS)
        if at_ns < NEVER_NS and not now_ns < self._wake_at_ns <= at_ns:
            self._wake_at_ns = max(at_ns, now_ns + 1)
            self._fabric.at(self._wake_at_ns, self._wake)

    def _next_flow(self, now_ns: int) -> NicFlow | None:
        """The next flow in turn that may send now."""
        count, port = len(self._sending), self.port
        for step in range(count):
            turn = (self._turn + step) % count
            flow = self._sending[turn]
            if (port is None or port.accepts(flow.framing.priority)) and flow.sender.ready_at(now_ns) <= now_ns:
                self._turn = (turn + 1) % count
                return flow
        return None

    def _wake(self, now_ns: int) -> None:
        if now_ns != self._wake_at_ns:
            return  # superseded by an earlier one
        self._wake_at_ns = 0
        for flow in self._sending[:]:
            if flow.sender.timeout_at <= now_ns:
                flow.sender.handle_timeout(now_ns)
                if flow.sender.has_failed:
                    self._sending.remove(flow)
        self._pump(now_ns)

    def _receive(self, packets: list[Packet], now_ns: int) -> None:
        for packet in packets:
            content = packet.content
            if isinstance(content, Data):
                self._take_data(content, packet.marked, now_ns)
            else:
                flow, reply = content
                self._take_reply(flow, reply, now_ns)
        self._pump(now_ns)

    def _take_data(self, data: Data, marked: bool, now_ns: int) -> None:  # noqa: FBT001 - internal
        flow, send = data.flow, self._fabric.send
        reply = flow.receiver.handle(data.psn, transmission=data.transmission, marked=marked)
        if marked and flow.notifications is not None and flow.notifications.due(now_ns):
            note = FlowReply(ReplyKind.CNP, flow.receiver.expected, data.psn, data.transmission, marked)
            send(flow.notify, length_bytes=CNP_BYTES, content=(flow, note))
        if reply is not None:
            send(flow.back, length_bytes=flow.framing.reply_bytes, content=(flow, reply))
        if flow.done_at_ns < 0 and flow.receiver.is_complete:
            flow.done_at_ns = now_ns
            if flow.done is not None:
                flow.done(now_ns)

    def _take_reply(self, flow: NicFlow, reply: FlowReply, now_ns: int) -> None:
        flow.sender.handle(reply, now_ns)
        if flow.sender.is_done and flow in self._sending:
            self._sending.remove(flow)
            self._turn = 0
