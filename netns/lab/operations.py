"""The operations that build a fabric, as data. `str(operation)` is the line that `srd-lab plan` prints.

Only two kinds create a named object outside a lab's namespaces: `AddNamespace` and `StartRelay`. Everything else is
inside a namespace and ends with it: deleting a namespace removes its interfaces, addresses, routes, rules, sysctls and
qdiscs, and with a veth also its far end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from netns.netem.shape import Shape
from netns.netem.tc_format import netem_arguments

RESILIENT_BUCKETS: Final = 128
"""Of each group; a next hop's share is a whole number of buckets, so there are far more buckets than next hops."""

RESILIENT_IDLE_S: Final = 1
"""How long a bucket must be idle before it returns to a recovered next hop. Linux's default is 120 s; labs are
short-lived."""


@dataclass(frozen=True, slots=True)
class AddNamespace:
    """Add a named network namespace for one node, with its loopback up."""

    netns: str

    def __str__(self) -> str:
        return f"netns add {self.netns}"


@dataclass(frozen=True, slots=True)
class InNamespace:
    """An operation that is executed inside its namespace and ends with it."""

    netns: str


@dataclass(frozen=True, slots=True)
class OfInterface(InNamespace):
    """Such an operation of one interface."""

    ifname: str


@dataclass(frozen=True, slots=True)
class SetSysctl(InNamespace):
    """Set a sysctl of a namespace; an optional one may be missing from older kernels."""

    key: str
    value: int
    optional: bool = False

    def __str__(self) -> str:
        note = " (where the kernel has it)" if self.optional else ""
        return f"sysctl {self.netns} {self.key}={self.value}{note}"


@dataclass(frozen=True, slots=True)
class AddVeth(OfInterface):
    """Add a veth pair, each end in its own namespace."""

    hardware: str
    peer_netns: str
    peer_ifname: str
    peer_hardware: str
    mtu: int

    def __str__(self) -> str:
        return f"veth {self.netns}:{self.ifname} - {self.peer_netns}:{self.peer_ifname} mtu {self.mtu}"


@dataclass(frozen=True, slots=True)
class AddTap(OfInterface):
    """Add a persistent TAP device: one end of a link that the relay carries."""

    hardware: str
    mtu: int
    queue_packets: int

    def __str__(self) -> str:
        return f"tap {self.netns}:{self.ifname} mtu {self.mtu} txqueuelen {self.queue_packets}"


@dataclass(frozen=True, slots=True)
class AddAddress(OfInterface):
    """Add an address, as address/length, to an interface."""

    address: str

    def __str__(self) -> str:
        return f"address {self.netns} {self.address} dev {self.ifname}"


@dataclass(frozen=True, slots=True)
class SetState(OfInterface):
    """Bring an interface up, or take it down: then the far end of a veth loses its carrier."""

    state: Literal["up", "down"]

    def __str__(self) -> str:
        return f"{self.state} {self.netns}:{self.ifname}"


@dataclass(frozen=True, slots=True)
class SetQuiet(OfInterface):
    """Turn off an interface's own traffic: no neighbour discovery, no multicast listener reports."""

    def __str__(self) -> str:
        return f"quiet {self.netns}:{self.ifname} arp off multicast off"


@dataclass(frozen=True, slots=True)
class SetCarrier(OfInterface):
    """Set or clear the carrier of a TAP."""

    state: Literal["on", "off"]

    def __str__(self) -> str:
        return f"carrier {self.netns}:{self.ifname} {self.state}"


@dataclass(frozen=True, slots=True)
class SyncCarrier(OfInterface):
    """Make the kernel process an interface's carrier now, with its consequences; wait until it takes its addresses.

    Otherwise it does so up to a second later: until then routes are unchanged, IPv6 has none for the addresses of the
    interface and those behind it, and a queue drops everything.
    """

    def __str__(self) -> str:
        return f"settle {self.netns}:{self.ifname}"


@dataclass(frozen=True, slots=True)
class AddNeighbour(OfInterface):
    """Add a permanent neighbour entry, so that ARP sends no requests."""

    address: str
    hardware: str

    def __str__(self) -> str:
        return f"neighbour {self.netns} {self.address} lladdr {self.hardware} dev {self.ifname}"


@dataclass(frozen=True, slots=True)
class Hop:
    """A next hop of a route."""

    gateway: str
    ifname: str


@dataclass(frozen=True, slots=True)
class AddRoute(InNamespace):
    """Add a route over one next hop or, by ECMP, over several."""

    destination: str
    hops: tuple[Hop, ...]
    source: str | None = None
    table: int | None = None
    group: int | None = None
    """The nexthop group whose members are `hops`; None: the route has its own list."""

    def __str__(self) -> str:
        nexthop = "nexthop " if len(self.hops) > 1 else ""
        parts = [f"route {self.netns} {self.destination}"]
        if self.group is None:
            parts += [f"{nexthop}via {hop.gateway} dev {hop.ifname}" for hop in self.hops]
        else:
            parts.append(f"nhid {self.group}")
        if self.source is not None:
            parts.append(f"src {self.source}")
        if self.table is not None:
            parts.append(f"table {self.table}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class AddNexthop(InNamespace):
    """Add a nexthop object: a next hop with a number, to which groups refer."""

    number: int
    hop: Hop

    def __str__(self) -> str:
        return f"nexthop {self.netns} id {self.number} via {self.hop.gateway} dev {self.hop.ifname}"


@dataclass(frozen=True, slots=True)
class AddNexthopGroup(InNamespace):
    """Add a resilient group: flows hash to buckets, and a bucket keeps its next hop as long as that exists."""

    number: int
    members: tuple[AddNexthop, ...]

    def __str__(self) -> str:
        members = "/".join(str(member.number) for member in self.members)
        kind = f"type resilient buckets {RESILIENT_BUCKETS} idle_timer {RESILIENT_IDLE_S}"
        return f"nexthop {self.netns} id {self.number} group {members} {kind}"


@dataclass(frozen=True, slots=True)
class AddRule(InNamespace):
    """Add a policy rule: packets from `source` use `table` first."""

    source: str
    table: int

    def __str__(self) -> str:
        return f"rule {self.netns} from {self.source} lookup {self.table}"


@dataclass(frozen=True, slots=True)
class SetOffloads(OfInterface):
    """Set offloads of an interface, by ethtool's names: (name, "on" or "off")."""

    features: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        features = " ".join(f"{name} {state}" for name, state in self.features)
        return f"ethtool {self.netns}:{self.ifname} {features}"


@dataclass(frozen=True, slots=True)
class SetNetem(OfInterface):
    """Set a netem qdisc at the egress of an interface (kernel backend)."""

    shape: Shape
    seed: int | None = None
    """Of the kernel's draws; None if the kernel supports no seed, or should choose."""

    before: Shape | None = None
    """The current shape of the interface, if this is a change."""

    def __str__(self) -> str:
        seed = "" if self.seed is None or self.shape.seed is not None else f" seed {self.seed}"
        return f"netem {self.netns}:{self.ifname} {' '.join(netem_arguments(self.shape))}{seed}"


@dataclass(frozen=True, slots=True)
class RelayLink:
    """A link that the relay carries between two TAP devices."""

    name: str
    netns_a: str
    ifname_a: str
    netns_b: str
    ifname_b: str
    shape_ab: Shape
    shape_ba: Shape
    seed_ab: int
    seed_ba: int

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RelayLink:
        """Return the link of an entry in the relay's specification file. Raises TypeError, KeyError or ShapeError."""
        shapes = {key: Shape.from_dict(values[key]) for key in ("shape_ab", "shape_ba")}
        return cls(**{**values, **shapes})


@dataclass(frozen=True, slots=True)
class StartRelay:
    """Start the process that carries all shaped links of a lab (relay backend)."""

    lab: str
    links: tuple[RelayLink, ...]

    def __str__(self) -> str:
        return f"relay {self.lab} carrying {', '.join(link.name for link in self.links)}"

    def to_dict(self, *, control: str) -> Mapping[str, Any]:
        """Return the relay's specification file; `control` is the path of its socket."""
        return {"lab": self.lab, "control": control, "links": [asdict(link) for link in self.links]}


Operation = AddNamespace | InNamespace | StartRelay
"""An operation of a plan."""


def undo(steps: Iterable[Operation]) -> list[str]:
    """Return the lines of what removes all that `steps` create, in reverse order of creation."""
    made = [step for step in steps if isinstance(step, AddNamespace | StartRelay)]
    return [
        f"netns delete {step.netns}" if isinstance(step, AddNamespace) else f"relay stop {step.lab}"
        for step in reversed(made)
    ]
