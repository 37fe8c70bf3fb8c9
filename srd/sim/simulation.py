"""Any number of protocol cores on the virtual fabric: simulated hosts, the peers between them, and virtual time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.lossless.profile import SwitchProfile
from netns.backends.virtual.virtual_link import PacketEvent
from netns.topology.model import Topology
from srd.proto.config import ProtocolConfig
from srd.proto.events import Event, MessageReceived
from srd.proto.recv.receiver import Receiver
from srd.proto.send.sender import Sender
from srd.proto.wire.status import Status
from srd.sim.errors import SimulationError
from srd.sim.host import SimHost
from srd.sim.models.nic import Nic

NS_PER_S: Final = 1_000_000_000
OPENING_S: Final = 5.0
"""Virtual time within which every peer of an experiment must be open; some fabrics lose handshake packets."""
COLLECT_AFTER: Final = 1_000_000
"""New objects, after which Python's collector looks for reference cycles. A simulation makes none, and holds millions
of objects, which the collector otherwise goes through again and again: a third of the time with 1,024 hosts."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A peer, from the view of the end that opened it and sends."""

    source: SimHost
    peer: int
    destination: SimHost
    remote_peer: int
    """The destination's number for the source."""

    def post(self, *, length: int, immediate: int = 0) -> int:
        """Send a message from source to destination; return the request's number."""
        return self.source.post(self.peer, length=length, immediate=immediate)

    @property
    def sender(self) -> Sender:
        """The sending half at the source, for inspection."""
        sender = self.source.core.peer(self.peer).sender
        assert sender is not None, "a connection is open"  # noqa: S101 - for the type; `connect` waited for it
        return sender

    @property
    def receiver(self) -> Receiver:
        """The receiving half at the destination, for inspection."""
        return self.destination.core.peer(self.remote_peer).receiver


@dataclass(slots=True)
class _Flow:
    left_bytes: int
    done: Callable[[float], None]


class Simulation:
    """A virtual fabric with a simulated host at each host in use. The same seed gives the same run."""

    def __init__(
        self,
        topology: Topology,
        *,
        config: ProtocolConfig,
        seed: int,
        observe: Callable[[PacketEvent], None] | None = None,
        switches: SwitchProfile | None = None,
    ) -> None:
        """Create the fabric; `seed` is that of the cores, and the fabric's own seed is in the topology.

        `switches`: see `VirtualFabric`.
        """
        self.fabric = VirtualFabric(topology, observe=observe, switches=switches)
        self.sim_hosts: dict[str, SimHost] = {}
        self.nics: dict[str, Nic] = {}
        self._config = config
        self._seed = seed
        self._flows: list[_Flow] = []

    @property
    def now_ns(self) -> int:
        """Virtual time since the beginning in ns."""
        return self.fabric.now_ns

    def sim_host(self, host: str) -> SimHost:
        """Return the simulated host; created on first use."""
        sim_host = self.sim_hosts.get(host)
        if sim_host is None:
            sim_host = self.sim_hosts[host] = SimHost(self.fabric, host, config=self._config, seed=self._seed)
        return sim_host

    def nic(self, host: str) -> Nic:
        """Return the card for flows of other transports; created on first use. A host has this or a simulated host."""
        nic = self.nics.get(host)
        if nic is None:
            nic = self.nics[host] = Nic(self.fabric, host)
        return nic

    def connect(self, pairs: Iterable[tuple[str, str]]) -> list[Connection]:
        """Open a peer for each (source, destination), and run until all are open.

        A pair of hosts has one peer, whichever of them opened it. Raises SimulationError if some do not open.
        """
        wanted = [(self.sim_host(source), self.sim_host(destination)) for source, destination in pairs]
        for source, destination in wanted:
            source.connect(destination.address)
        for source, _ in wanted:
            source.serve()

        closed = wanted[:]

        def all_open() -> bool:
            while closed and closed[-1][1].address in closed[-1][0].peers:  # called often: check only one
                closed.pop()
            return not closed

        if not self.run(seconds=OPENING_S, done=all_open):
            raise SimulationError(
                f"{len(closed)} of {len(wanted)} peers were not open after {OPENING_S:g} virtual seconds"
            )
        return [Connection(a, a.peers[b.address], b, b.peer_of(a.address[0])) for a, b in wanted]

    def start_flow(
        self, source: str, destination: str, *, size_bytes: int, at_ns: int, done: Callable[[float], None]
    ) -> None:
        """Send so many bytes from that time on, to a host that `connect` has opened a peer to.

        `done` is called with the time in seconds at which all were delivered. The flow's messages have its number as
        their immediate. It takes the events of the receiving host.
        """
        sender, receiver = self.sim_host(source), self.sim_host(destination)
        receiver.on_event = self._take
        flow = len(self._flows)
        self._flows.append(_Flow(size_bytes, done))

        def start(_now_ns: int) -> None:
            peer, longest, left = sender.peers[receiver.address], self._config.max_message_bytes, size_bytes
            while left:
                length = min(left, longest)
                sender.post(peer, length=length, immediate=flow)
                left -= length
            sender.serve()

        self.fabric.at(at_ns, start)

    def _take(self, event: Event) -> None:
        if isinstance(event, MessageReceived):
            flow = self._flows[event.immediate or 0]
            flow.left_bytes -= event.length
            if not flow.left_bytes:
                flow.done(self.now_ns / NS_PER_S)

    def run(self, *, seconds: float, done: Callable[[], bool] | None = None) -> bool:
        """Run for `seconds` of virtual time, or until `done` returns true; return whether it did."""
        first, second, third = gc.get_threshold()
        if first:  # 0: it is off
            gc.set_threshold(max(first, COLLECT_AFTER), second, third)
        try:
            return self.fabric.run(until_ns=self.now_ns + round(seconds * NS_PER_S), done=done)
        finally:
            gc.set_threshold(first, second, third)

    def require_no_failures(self) -> None:
        """Raise SimulationError if a request ended in error or a peer ended, as the measurement is then invalid."""
        for sim_host in self.sim_hosts.values():
            for request, (_, status) in sim_host.completions.items():
                if status is not Status.OK:
                    raise SimulationError(
                        f"{sim_host.host}: request {request} ended with status {int(status)} ({status.name})"
                    )
            for ended in sim_host.ended:
                raise SimulationError(f"{sim_host.host}: peer {ended.peer} ended: {ended.reason}")
