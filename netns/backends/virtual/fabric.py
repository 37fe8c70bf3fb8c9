"""The virtual fabric: a topology in virtual time, without a kernel, deterministic to the byte.

Theory of operation. Stations are attached to hosts and send packets, of which the fabric knows the 4-tuple and the
length and nothing else. Each direction of each link is a lane (lane.py): netem's model with the direction's shape and
the seed that the relay would give it. Which lanes a flow takes is looked up once (forwarding.py). An agenda (agenda.py)
holds the next departure of each lane, whatever stations have set, and failures; running it is running the fabric.

What arrives at a host at one moment is handed to its station as one batch, in the order of arrival.

Same topology, seed and sends, same packets at the same nanosecond: nothing here reads a clock, rolls other dice than
the seeded ones, or depends on the order of a set or a hash of Python's.

Differences from the fabrics of namespaces, all on purpose: hosts' own links may be shaped; `ce_threshold` works;
unshaped links take no time; there is no ICMP, and a packet longer than the MTU just vanishes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from netns.backends.virtual.event_queue import Action, EventQueue
from netns.backends.virtual.forwarding import Forwarding
from netns.backends.virtual.virtual_link import Flow, Inbox, Packet, Record, VirtualLink
from netns.errors import BackendError
from netns.faults.schedule import ScheduledEvent
from netns.lab.plan import shape_seed
from netns.netem.queue import COUNTERS
from netns.netem.shape import Shape
from netns.topology.addressing import Addressing, IpVersion, addressing
from netns.topology.model import ETHERNET_HEADER_BYTES, Link, Topology

Receive = Callable[[list[Packet], int], None]
"""Takes the packets that arrived at one moment, and the moment in ns."""


class VirtualFabric:
    """Build it from a topology, `attach` stations, `send` from them, `run`.

    `too_long` counts packets beyond the MTU; all else is counted by the lane where it happened.
    """

    def __init__(self, topology: Topology, *, observe: Callable[[Record], None] | None = None) -> None:
        """`observe` is told what happens to each packet at each lane: see `trace.JsonLines`."""
        self.topology = topology
        self.too_long = 0
        self._events = EventQueue()
        self._events.remaining = self._hand_over
        self._forwarding = Forwarding(topology)
        self._filled: list[Inbox] = []
        self._inboxes = {host: Inbox(self._filled) for host in topology.hosts}
        self._flows: dict[tuple[str, int, str, int], Flow] = {}
        self._max_length_bytes = topology.mtu + ETHERNET_HEADER_BYTES
        self._sent = 0
        self._dead: dict[str, list[bool]] = {}  # what a plan let fail for good: with its carrier, or silently
        self._carrierless: Counter[frozenset[str]] = Counter()
        self._links = dict(self._make_links(link, end) for link in topology.links for end in ("ab", "ba"))
        for lane in self._links.values():
            lane.observe = observe

    def _make_links(self, link: Link, direction: Literal["ab", "ba"]) -> tuple[tuple[str, str], VirtualLink]:
        ends, shape = (link.a, link.b), link.shape_ab
        if direction == "ba":
            ends, shape = (link.b, link.a), link.shape_ba
        seed = shape_seed(self.topology, link, direction=direction)
        return ends, VirtualLink(f"{ends[0]}>{ends[1]}", shape=shape, seed=seed, agenda=self._events)

    # -- looking ------------------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """The time, from 0."""
        return self._events.now_ns

    @property
    def packet_hops(self) -> int:
        """How often a packet has crossed a lane."""
        return sum(lane.packets for lane in self._links.values())

    @property
    def links(self) -> Mapping[tuple[str, str], VirtualLink]:
        """(from, to) -> that direction of the link between them, for counters and queues."""
        return self._links

    def address(self, host: str, *, version: IpVersion = 4) -> str:
        """The host's main address: as in the other fabrics, reached over all spines. Raises TopologyError."""
        self.topology.switch_of(host)
        return self._addressing(version).main[host]

    def pinned_addresses(self, host: str, *, version: IpVersion = 4) -> Mapping[str, str]:
        """Spine -> the host's address whose traffic, to it and from it, crosses that spine only."""
        self.topology.switch_of(host)
        return dict(self._addressing(version).pinned[host])

    def _addressing(self, version: IpVersion) -> Addressing:
        return self._forwarding.addresses.get(version) or addressing(self.topology, version=version)

    def counters(self) -> dict[str, dict[str, int]]:
        """Lane (FROM>TO) -> what left it, and what was dropped or marked there, in packets unless named otherwise."""
        return {
            lane.name: {
                "packets": lane.packets,
                "bytes": lane.bytes,
                **(lane.netem.counters() if lane.netem is not None else dict.fromkeys(COUNTERS, 0)),
                "blackholed": lane.blackholed,
                "marked": lane.marked,
            }
            for lane in self._links.values()
        }

    # -- stations -----------------------------------------------------------------------------------------------

    def attach(self, host: str, receive: Receive) -> None:
        """Give a host its station. Raises BackendError if it has one."""
        self.topology.switch_of(host)
        inbox = self._inboxes[host]
        if inbox.receive is not None:
            raise BackendError(f"host {host}: has a station already; one station stands for all sockets of a host")
        inbox.receive = receive

    def flow(self, source: str, *, source_port: int, destination: str, destination_port: int) -> Flow:
        """The flow with this 4-tuple, for `send`. Raises TopologyError if an address is no host's."""
        key = (source, source_port, destination, destination_port)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = Flow(*key, inbox=self._inboxes[self._forwarding.host_of(destination)])
            self._route(flow)
        return flow

    def _route(self, flow: Flow) -> None:
        """Look up the lanes that the flow's next packets take."""
        way = self._forwarding.way(
            flow.source,
            source_port=flow.source_port,
            destination=flow.destination,
            destination_port=flow.destination_port,
        )
        flow.links = tuple(self._links[ends] for ends in pairwise(way))

    def send(self, flow: Flow, *, length_bytes: int, content: Any) -> None:
        """Put a packet on its way now. `length_bytes` is its size on the wire, Ethernet header included."""
        if length_bytes > self._max_length_bytes:
            self.too_long += 1
            return
        self._sent += 1
        packet = Packet(flow, number=self._sent, length_bytes=length_bytes, content=content)
        flow.links[0].transmit(packet, self._events.now_ns)

    def at(self, at_ns: int, action: Action) -> None:
        """Have something done at a time: stations' timers, and whatever an experiment does to the fabric."""
        self._events.at(at_ns, action)

    # -- failures -----------------------------------------------------------------------------------------------

    def fail(self, name: str, *, at_ns: int, for_ns: int | None = None, carrier: bool = False) -> None:
        """Let a link ("leaf1-spine2") or a node ("spine2") lose everything from `at_ns` on.

        Silently, or with the `carrier`: then the routers at the ends choose other ways, where they have any. It is
        repaired `for_ns` later; None: never. Overlapping failures add up. Raises TopologyError for a name that is
        neither.
        """
        links = self.topology.links_at(name)
        self._events.at(at_ns, lambda _: self._count_down(links, by=1, carrier=carrier))
        if for_ns is not None:
            self._events.at(at_ns + for_ns, lambda _: self._count_down(links, by=-1, carrier=carrier))

    def play(self, events: Iterable[ScheduledEvent]) -> None:
        """Set a plan (netns/faults/schedule.py) for the time from now on. Raises TopologyError or ShapeError."""
        now_ns = self._events.now_ns
        for event in events:
            at_ns = now_ns + round(event.at_us * 1000)
            for_ns = None if event.for_us is None else round(event.for_us * 1000)
            if event.action == "set":
                self._set_shape(event, at_ns=at_ns, for_ns=for_ns)
                continue
            links = self.topology.links_at(event.name)
            if event.action == "repair":
                self._events.at(at_ns, partial(self._repair, event.name, links))
            elif for_ns is None:
                self._events.at(at_ns, partial(self._fail_for_good, event, links))
            else:
                self.fail(event.name, at_ns=at_ns, for_ns=for_ns, carrier=event.carrier)

    def _fail_for_good(self, event: ScheduledEvent, links: tuple[Link, ...], _now_ns: int) -> None:
        self._dead.setdefault(event.name, []).append(event.carrier)
        self._count_down(links, by=1, carrier=event.carrier)

    def _repair(self, name: str, links: tuple[Link, ...], _now_ns: int) -> None:
        """End all that a plan let fail under this name without an end."""
        for carrier in self._dead.pop(name, []):
            self._count_down(links, by=-1, carrier=carrier)

    def _count_down(self, links: tuple[Link, ...], *, by: int, carrier: bool) -> None:
        """Add reasons for links to be down, or take them away; flows find their ways anew where carriers count."""
        for link in links:
            self._links[link.a, link.b].down += by
            self._links[link.b, link.a].down += by
        if carrier:
            self._carrierless.update({frozenset((link.a, link.b)): by for link in links})
            self._forwarding.dead = {ends for ends, reasons in self._carrierless.items() if reasons}
            for flow in self._flows.values():
                self._route(flow)

    def _set_shape(self, event: ScheduledEvent, *, at_ns: int, for_ns: int | None) -> None:
        link = self.topology.link(event.name)
        ends = {"ab": (link.a, link.b), "ba": (link.b, link.a)}
        lanes = [self._links[pair] for direction, pair in ends.items() if event.direction in ("both", direction)]
        for lane in lanes:
            _shape_of(lane).changed(event.shape or {}, base=event.base)

        def change(_now_ns: int) -> None:
            before = [_shape_of(lane) for lane in lanes]
            for lane, shape in zip(lanes, before, strict=True):
                lane.reshape(shape.changed(event.shape or {}, base=event.base))
            if for_ns is not None:
                self._events.at(at_ns + for_ns, lambda _: _reshape(lanes, before))

        self._events.at(at_ns, change)

    def narrow(self, name: str, *, mtu: int) -> None:
        """Let a link or a node carry IP packets of `mtu` bytes at most; longer ones vanish there, and nobody is told.

        Raises TopologyError for a name that is neither.
        """
        for link in self.topology.links_at(name):
            for ends in ((link.a, link.b), (link.b, link.a)):
                self._links[ends].longest_bytes = mtu + ETHERNET_HEADER_BYTES

    # -- time ---------------------------------------------------------------------------------------------------

    def run(self, *, until_ns: int, done: Callable[[], bool] | None = None) -> bool:
        """Let time pass until `until_ns` or until `done` holds; return whether it did. See `EventQueue.run`."""
        return self._events.run(until_ns=until_ns, done=done)

    def _hand_over(self, now_ns: int) -> None:
        """Give every station what arrived at this moment."""
        filled = self._filled[:]
        self._filled.clear()  # in place: the inboxes hold this very list
        for inbox in filled:
            inbox.deliver(now_ns)


def _shape_of(lane: VirtualLink) -> Shape:
    return Shape() if lane.netem is None else lane.netem.shape


def _reshape(lanes: list[VirtualLink], shapes: list[Shape]) -> None:
    for lane, shape in zip(lanes, shapes, strict=True):
        lane.reshape(shape)
