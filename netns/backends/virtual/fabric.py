"""The virtual fabric: a topology in virtual time, without a kernel, deterministic to the byte.

Theory of operation. A simulated host is attached to each host and sends packets; the fabric uses only their 4-tuple and
length. Each direction of each link is a virtual link (virtual_link.py): netem's model with the shape of the direction
and the same seed as in the relay. The route of a flow is looked up once (forwarding.py). The event queue
(event_queue.py) holds the next departure of each virtual link, scheduled actions, and failures; `run` executes them.

All packets that arrive at a host at the same time are delivered to its simulated host as one batch, in the order of
arrival.

The same topology, seed and sends give the same packets at the same nanosecond: nothing here reads a clock, draws
random numbers other than the seeded ones, or depends on the order of a set or on Python's hash of a string.

Intended differences from the namespace backends (kernel, relay): links of hosts may be shaped; `ce_threshold` works;
unshaped links take no time; there is no ICMP: a packet longer than the MTU is dropped without notice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from typing import Any, Literal

from netns.backends.virtual.event_queue import Action, EventQueue
from netns.backends.virtual.forwarding import Forwarding
from netns.backends.virtual.lossless.egress_port import EgressPort
from netns.backends.virtual.lossless.profile import SwitchProfile
from netns.backends.virtual.lossless.switch import BufferedSwitch
from netns.backends.virtual.lossless.watchdog import Watchdog
from netns.backends.virtual.virtual_link import HostArrivals, Packet, PacketEvent, PacketFlow, VirtualLink
from netns.errors import BackendError
from netns.faults.schedule import ScheduledEvent
from netns.lab.plan import shape_seed
from netns.netem.changes import AnyShape, Change, with_change, without_change
from netns.netem.shape import Shape
from netns.topology.addressing import IpVersion, addressing
from netns.topology.model import ETHERNET_HEADER_BYTES, Link, Topology

Receive = Callable[[list[Packet], int], None]
"""Called with the packets that arrived at the same time, and that time in ns."""


class VirtualFabric:
    """Build it from a topology, `attach` simulated hosts, `send`, `run`.

    `too_long` counts packets longer than the MTU; everything else is counted at the virtual link where it happened.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        observe: Callable[[PacketEvent], None] | None = None,
        switches: SwitchProfile | None = None,
    ) -> None:
        """`observe` is called for each event of a packet at a virtual link: see `JsonLines`.

        With `switches` each switch has a buffer that its ports share, and may pause who sends to it (lossless/); a
        direction of a link without a shape then has that of the other, and a link without any the rate that the links
        of its switch have together. Raises BackendError if a buffer is too small, ShapeError if a link has no rate.
        """
        self.topology = topology
        self.switches: dict[str, BufferedSwitch] = {}
        """By name; empty without `switches`."""
        self.watchdog: Watchdog | None = None
        self._profile = switches
        self.too_long = 0
        self._events = EventQueue()
        self._events.remaining = self._deliver
        self._forwarding = Forwarding(topology)
        self._filled: list[HostArrivals] = []
        self._arrivals = {host: HostArrivals(self._filled) for host in topology.hosts}
        self._flows: dict[tuple[str, int, str, int], PacketFlow] = {}
        self._max_length_bytes = topology.mtu + ETHERNET_HEADER_BYTES
        self._sent = 0
        self._expired = VirtualLink("expired", shape=None, seed=0, events=self._events)
        self._expired.failures = 1  # it drops what has used up its TTL
        self._failures: list[_Failure] = []
        self._changes = count()
        self._carrierless: Counter[frozenset[str]] = Counter()
        self._links = dict(self._make_links(link, end) for link in topology.links for end in ("ab", "ba"))
        for virtual_link in self._links.values():
            virtual_link.observe = observe
        if switches is not None:
            self._make_switches(switches)

    def _make_links(self, link: Link, direction: Literal["ab", "ba"]) -> tuple[tuple[str, str], VirtualLink]:
        ends, shape = (link.a, link.b), link.shape_ab
        if direction == "ba":
            ends, shape = (link.b, link.a), link.shape_ba
        seed, name = shape_seed(self.topology, link, direction=direction), f"{ends[0]}>{ends[1]}"
        if self._profile is None:
            return ends, VirtualLink(name, shape=shape, seed=seed, events=self._events)
        shape = shape or link.shape_ab or link.shape_ba or Shape(rate_bps=self._rate_bps(link))
        return ends, EgressPort(name, shape=shape, seed=seed, events=self._events, profile=self._profile)

    def _rate_bps(self, link: Link) -> int:
        """The rate of a link without a shape: what the links of one of its ends have together, so that it is ample."""
        return max(
            sum(shape.rate_bps for each in self.topology.links_of[end] if (shape := each.shape_ab or each.shape_ba))
            for end in (link.a, link.b)
        )

    def _make_switches(self, profile: SwitchProfile) -> None:
        ports = {ends: port for ends, port in self._links.items() if isinstance(port, EgressPort)}
        frame_bytes = self.topology.mtu + ETHERNET_HEADER_BYTES
        for switch in self.topology.switches:
            others = [link.other(switch.name) for link in self.topology.links_of[switch.name]]
            links = [(ports[other, switch.name], ports[switch.name, other]) for other in others]
            self.switches[switch.name] = BufferedSwitch(
                switch.name, links=links, profile=profile, frame_bytes=frame_bytes, events=self._events
            )
        if profile.watchdog is not None:
            watched = [port for port in ports.values() if port.owner is not None]
            self.watchdog = Watchdog(watched, profile=profile.watchdog, switches=profile, events=self._events)

    # -- queries ------------------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """The current time; it starts at 0."""
        return self._events.now_ns

    @property
    def packet_hops(self) -> int:
        """The number of packets that left a virtual link, summed over the links."""
        return sum(virtual_link.packets for virtual_link in self._links.values())

    @property
    def links(self) -> Mapping[tuple[str, str], VirtualLink]:
        """(from, to) -> virtual link, for counters and queues."""
        return self._links

    def address(self, host: str, *, version: IpVersion = 4) -> str:
        """The host's main address, reached over all spines, as in the other backends. Raises TopologyError."""
        self.topology.switch_of(host)
        known = self._forwarding.addresses.get(version) or addressing(self.topology, version=version)
        return known.main[host]

    def counters(self) -> dict[str, dict[str, int]]:
        """Virtual link (FROM>TO) -> packets and bytes that left it, and its counts of drops, marks and the like.

        Ports of switches with a shared buffer have `pauses`, too, and count as `overlimit` what there was no room for.
        """
        return {virtual_link.name: virtual_link.counters() for virtual_link in self._links.values()}

    # -- simulated hosts ----------------------------------------------------------------------------------------

    def attach(self, host: str, receive: Receive) -> None:
        """Attach the simulated host at a host. Raises BackendError if there is one."""
        self.topology.switch_of(host)
        arrivals = self._arrivals[host]
        if arrivals.receive is not None:
            raise BackendError(f"host {host}: has a simulated host already; attach one for all sockets")
        arrivals.receive = receive

    def flow(self, source: str, *, source_port: int, destination: str, destination_port: int) -> PacketFlow:
        """The flow with this 4-tuple, for `send`. Raises TopologyError if an address belongs to no host."""
        key = (source, source_port, destination, destination_port)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = PacketFlow(*key, arrivals=self._arrivals[self._forwarding.host_of(destination)])
            self._route(flow)
        return flow

    def _route(self, flow: PacketFlow) -> None:
        """Look up the virtual links for the flow's next packets."""
        route = self._forwarding.route(
            flow.source,
            source_port=flow.source_port,
            destination=flow.destination,
            destination_port=flow.destination_port,
        )
        flow.links = tuple(self._links[ends] for ends in pairwise(route))
        if route[-1] not in self._arrivals:
            flow.links = (*flow.links, self._expired)

    def send(self, flow: PacketFlow, *, length_bytes: int, content: Any) -> None:
        """Send a packet now. `length_bytes` is its size on the wire, Ethernet header included."""
        if length_bytes > self._max_length_bytes:
            self.too_long += 1
            return
        self._sent += 1
        packet = Packet(flow, number=self._sent, length_bytes=length_bytes, content=content)
        flow.links[0].transmit(packet, self._events.now_ns)

    def at(self, at_ns: int, action: Action) -> None:
        """Schedule an action: timers of simulated hosts, and changes that a test makes to the fabric."""
        self._events.at(at_ns, action)

    # -- failures -----------------------------------------------------------------------------------------------

    def fail(self, name: str, *, at_ns: int, for_ns: int | None = None, carrier: bool = False) -> None:
        """Let a link ("leaf1-spine2") or a node ("spine2") drop everything from `at_ns` on.

        With `carrier` the ends lose their carrier, too, and their routers choose other next hops where there are any;
        otherwise the failure is silent. It ends after `for_ns`, or when it is repaired. A link is up again when all its
        failures have ended. Raises TopologyError for a name that is neither.
        """
        failure = _Failure(self.topology.canonical_name(name), self.topology.links_at(name), carrier)
        self._events.at(at_ns, lambda _: self._begin(failure))
        if for_ns is not None:
            self._events.at(at_ns + for_ns, lambda _: self._end(failure))

    def bounce(self) -> None:
        """From now on, let routers without a next hop send to any other switch: see `Forwarding.bounces`."""
        self._forwarding.bounces = True

    def run_schedule(self, events: Iterable[ScheduledEvent]) -> None:
        """Schedule a fault schedule (netns/faults/schedule.py), starting now. Raises TopologyError or ShapeError."""
        now_ns = self._events.now_ns
        for event in events:
            at_ns = now_ns + round(event.at_us * 1000)
            for_ns = None if event.for_us is None else round(event.for_us * 1000)
            if event.action == "set":
                self._set_shape(event, at_ns=at_ns, for_ns=for_ns)
            elif event.action == "repair":
                self._events.at(at_ns, partial(self._repair, self.topology.canonical_name(event.name)))
            else:
                self.fail(event.name, at_ns=at_ns, for_ns=for_ns, carrier=event.carrier)

    def _repair(self, name: str, _now_ns: int) -> None:
        """End all failures of this name, as `srd-lab repair` does."""
        for failure in [each for each in self._failures if each.name == name]:
            self._end(failure)

    def _begin(self, failure: _Failure) -> None:
        self._failures.append(failure)
        self._count_down(failure.links, by=1, carrier=failure.carrier)

    def _end(self, failure: _Failure) -> None:
        """End a failure, unless it was repaired before its time."""
        if failure in self._failures:
            self._failures.remove(failure)
            self._count_down(failure.links, by=-1, carrier=failure.carrier)

    def _count_down(self, links: tuple[Link, ...], *, by: int, carrier: bool) -> None:
        """Add failures to links, or remove them; route all flows again if carriers change."""
        for link in links:
            self._links[link.a, link.b].failures += by
            self._links[link.b, link.a].failures += by
        if carrier:
            self._carrierless.update({frozenset((link.a, link.b)): by for link in links})
            self._forwarding.dead = {ends for ends, reasons in self._carrierless.items() if reasons}
            for flow in self._flows.values():
                self._route(flow)

    def _set_shape(self, event: ScheduledEvent, *, at_ns: int, for_ns: int | None) -> None:
        link = self.topology.link(event.name)
        a, b = (link.a, link.b) if event.name == link.name else (link.b, link.a)
        ends = {"ab": (a, b), "ba": (b, a)}
        virtual_links = [
            self._links[pair] for direction, pair in ends.items() if event.direction in ("both", direction)
        ]
        key = f"{next(self._changes)}"
        change = Change.parse(event.shape or {}, base=event.base, key=None if for_ns is None else key)
        for virtual_link in virtual_links:
            with_change(virtual_link.shape, change)  # raises what is wrong with it

        def edit(edited: Callable[[AnyShape], AnyShape], _now_ns: int) -> None:
            shaped = [virtual_link for virtual_link in virtual_links if virtual_link.netem is not None]
            for virtual_link in shaped or virtual_links:  # of both directions the shaped ones, as in a lab
                virtual_link.reshape(edited(virtual_link.shape))

        self._events.at(at_ns, partial(edit, lambda shape: with_change(shape, change)))
        if for_ns is not None:
            self._events.at(at_ns + for_ns, partial(edit, lambda shape: without_change(shape, key)))

    def narrow(self, name: str, *, mtu: int) -> None:
        """Let a link or a node carry IP packets of `mtu` bytes at most; it drops longer ones without notice.

        Raises TopologyError for a name that is neither.
        """
        for link in self.topology.links_at(name):
            for ends in ((link.a, link.b), (link.b, link.a)):
                self._links[ends].longest_bytes = mtu + ETHERNET_HEADER_BYTES

    # -- time ---------------------------------------------------------------------------------------------------

    def run(self, *, until_ns: int, done: Callable[[], bool] | None = None) -> bool:
        """Run until `until_ns` or until `done` holds; return whether it did. See `EventQueue.run`."""
        return self._events.run(until_ns=until_ns, done=done)

    def _deliver(self, now_ns: int) -> None:
        """Deliver the packets that arrived at this time."""
        if not self._filled:
            return
        filled = self._filled[:]
        self._filled.clear()  # in place: the arrivals refer to this list
        for arrivals in filled:
            arrivals.deliver(now_ns)


@dataclass(frozen=True, slots=True, eq=False)
class _Failure:
    """One failure of one link or node; `name` is its one name."""

    name: str
    links: tuple[Link, ...]
    carrier: bool
