"""The kinds of steps that build a fabric, as data. `str(step)` is the line that `srd-lab plan` prints.

Only two kinds create something with a name of its own outside a lab's namespaces: `AddNamespace` and `StartRelay`.
They alone have an `undo`. Everything else lives inside a namespace and ends with it: deleting a namespace removes its
interfaces, addresses, routes, rules, sysctls and qdiscs, and a veth's far end with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from netns.netem.shape import Shape
from netns.netem.tc_format import netem_arguments

RESILIENT_BUCKETS: Final = 128
"""Of each group; the share of a next hop is a whole number of them, so there are far more than next hops."""

RESILIENT_IDLE_S: Final = 1
"""How long a bucket has to be without packets before it goes to a next hop that is back. Linux says 120 s; labs are
short-lived."""


@dataclass(frozen=True, slots=True)
class AddNamespace:
    """A named network namespace for one node, its loopback up."""

    netns: str

    def __str__(self) -> str:
        return f"netns add {self.netns}"

    @property
    def undo(self) -> DeleteNamespace:
        """What removes it again."""
        return DeleteNamespace(self.netns)


@dataclass(frozen=True, slots=True)
class DeleteNamespace:
    """The end of a namespace and all that is in it."""

    netns: str

    def __str__(self) -> str:
        return f"netns delete {self.netns}"


@dataclass(frozen=True, slots=True)
class SetSysctl:
    """A sysctl of a namespace; an optional one may be missing from older kernels."""

    netns: str
    key: str
    value: int
    optional: bool = False

    def __str__(self) -> str:
        note = " (where the kernel has it)" if self.optional else ""
        return f"sysctl {self.netns} {self.key}={self.value}{note}"


@dataclass(frozen=True, slots=True)
class AddVeth:
    """A veth pair, each end in its own namespace."""

    netns: str
    ifname: str
    hardware: str
    peer_netns: str
    peer_ifname: str
    peer_hardware: str
    mtu: int

    def __str__(self) -> str:
        return f"veth {self.netns}:{self.ifname} - {self.peer_netns}:{self.peer_ifname} mtu {self.mtu}"


@dataclass(frozen=True, slots=True)
class AddTap:
    """A persistent TAP device: one end of a link that the relay carries."""

    netns: str
    ifname: str
    hardware: str
    mtu: int
    queue_packets: int

    def __str__(self) -> str:
        return f"tap {self.netns}:{self.ifname} mtu {self.mtu} txqueuelen {self.queue_packets}"


@dataclass(frozen=True, slots=True)
class AddAddress:
    """An address of an interface, as address/length."""

    netns: str
    ifname: str
    address: str

    def __str__(self) -> str:
        return f"address {self.netns} {self.address} dev {self.ifname}"


@dataclass(frozen=True, slots=True)
class SetUp:
    """An interface brought up."""

    netns: str
    ifname: str

    def __str__(self) -> str:
        return f"up {self.netns}:{self.ifname}"


@dataclass(frozen=True, slots=True)
class SetQuiet:
    """An interface that says nothing of its own: no neighbour discovery, no multicast listener reports."""

    netns: str
    ifname: str

    def __str__(self) -> str:
        return f"quiet {self.netns}:{self.ifname} arp off multicast off"


@dataclass(frozen=True, slots=True)
class SetDown:
    """An interface taken down; the far end of a veth loses its carrier."""

    netns: str
    ifname: str

    def __str__(self) -> str:
        return f"down {self.netns}:{self.ifname}"


@dataclass(frozen=True, slots=True)
class SetCarrier:
    """The carrier of a TAP, taken away or given back."""

    netns: str
    ifname: str
    state: Literal["on", "off"]

    def __str__(self) -> str:
        return f"carrier {self.netns}:{self.ifname} {self.state}"


@dataclass(frozen=True, slots=True)
class WaitForAddresses:
    """The kernel told to look at an interface's carrier now, and to do what follows from it.

    By itself it does so up to a second later: until then routes are what they were, and a queue drops everything.
    """

    netns: str
    ifname: str

    def __str__(self) -> str:
        return f"settle {self.netns}:{self.ifname}"


@dataclass(frozen=True, slots=True)
class AddNeighbour:
    """A permanent neighbour entry, so that nothing asks by ARP."""

    netns: str
    ifname: str
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
class AddRoute:
    """A route over one next hop or, by ECMP, over several."""

    netns: str
    destination: str
    hops: tuple[Hop, ...]
    source: str | None = None
    table: int | None = None
    group: int | None = None
    """The nexthop group that `hops` are the members of; None: the route has its own list."""

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
class AddNexthop:
    """A nexthop object: a next hop with a number, for groups to name."""

    netns: str
    number: int
    hop: Hop

    def __str__(self) -> str:
        return f"nexthop {self.netns} id {self.number} via {self.hop.gateway} dev {self.hop.ifname}"


@dataclass(frozen=True, slots=True)
class AddNexthopGroup:
    """A resilient group: flows fall into buckets, and a bucket keeps its next hop for as long as that is there."""

    netns: str
    number: int
    members: tuple[AddNexthop, ...]

    def __str__(self) -> str:
        members = "/".join(str(member.number) for member in self.members)
        kind = f"type resilient buckets {RESILIENT_BUCKETS} idle_timer {RESILIENT_IDLE_S}"
        return f"nexthop {self.netns} id {self.number} group {members} {kind}"


@dataclass(frozen=True, slots=True)
class AddRule:
    """A policy rule: what comes from `source` looks into `table` first."""

    netns: str
    source: str
    table: int

    def __str__(self) -> str:
        return f"rule {self.netns} from {self.source} lookup {self.table}"


@dataclass(frozen=True, slots=True)
class SetOffloads:
    """Offloads of an interface, by ethtool's names: (name, "on" or "off")."""

    netns: str
    ifname: str
    features: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        features = " ".join(f"{name} {state}" for name, state in self.features)
        return f"ethtool {self.netns}:{self.ifname} {features}"


@dataclass(frozen=True, slots=True)
class SetNetem:
    """A netem qdisc at the egress of an interface (kernel fabric)."""

    netns: str
    ifname: str
    shape: Shape
    seed: int | None = None
    """Of the kernel's draws; None where it takes none, or should choose."""

    before: Shape | None = None
    """The shape that the interface has, where it is a change."""

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

    def to_dict(self) -> dict[str, Any]:
        """The link as the relay's specification file has it."""
        return {
            "name": self.name,
            "a": {"netns": self.netns_a, "ifname": self.ifname_a},
            "b": {"netns": self.netns_b, "ifname": self.ifname_b},
            "shape_ab": self.shape_ab.to_dict(),
            "shape_ba": self.shape_ba.to_dict(),
            "seed_ab": self.seed_ab,
            "seed_ba": self.seed_ba,
        }


@dataclass(frozen=True, slots=True)
class StartRelay:
    """The process that carries all shaped links of a lab (relay fabric)."""

    lab: str
    links: tuple[RelayLink, ...]

    def __str__(self) -> str:
        return f"relay {self.lab} carrying {', '.join(link.name for link in self.links)}"

    @property
    def undo(self) -> StopRelay:
        """What stops it again."""
        return StopRelay(self.lab)

    def to_dict(self, *, control: str) -> Mapping[str, Any]:
        """The relay's specification file; `control` is the path of its socket."""
        return {"lab": self.lab, "control": control, "links": [link.to_dict() for link in self.links]}


@dataclass(frozen=True, slots=True)
class StopRelay:
    """The end of a lab's relay process."""

    lab: str

    def __str__(self) -> str:
        return f"relay stop {self.lab}"


InNamespace = (
    SetSysctl
    | AddVeth
    | AddTap
    | SetQuiet
    | AddAddress
    | SetUp
    | SetDown
    | SetCarrier
    | WaitForAddresses
    | AddNeighbour
    | AddNexthop
    | AddNexthopGroup
    | AddRoute
    | AddRule
    | SetOffloads
    | SetNetem
)
"""Steps that are taken inside their namespace and end with it."""

Operation = AddNamespace | InNamespace | StartRelay
"""A step of a plan."""


def undo(steps: Iterable[Operation]) -> tuple[DeleteNamespace | StopRelay, ...]:
    """What removes everything that `steps` create, last made first."""
    made = [step.undo for step in steps if isinstance(step, AddNamespace | StartRelay)]
    return tuple(reversed(made))
