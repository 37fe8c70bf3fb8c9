"""The plain data of a placement: requests, usage, results.

Pods are Kubernetes' term for the processes of a job; a job's ranks are the pods of its pod set. A *level* is a label
key, and the levels of a topology are given from the widest to the narrowest. A *domain* is a part of the network at one
level, identified by the label values of the levels down to it: rack names may repeat in other blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from netns.inventory.nodes import Taint

Mode = Literal["required", "preferred", "unconstrained", "implied", "slice_only"]
Kind = Literal[
    "not_fit",
    "unknown_level",
    "unknown_slice_level",
    "slice_above_podset",
    "slice_size",
    "unknown_inner_level",
    "inner_not_below",
    "inner_not_dividing",
    "no_domains_at_level",
    "no_replacement",
    "stale",
    "count",
]


@dataclass(frozen=True, slots=True)
class Toleration:
    """Allows a pod on a tainted node; no key with Exists tolerates everything, no effect means any effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement on a node's label (or, in `fields` of a term, on its metadata.name)."""

    key: str
    operator: str
    """In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Term:
    """Requirements that must all hold; an empty term matches no node, as in Kubernetes."""

    expressions: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Affinity:
    """A pod's node affinity: one of `required` must hold, each of `preferred` that holds adds its weight."""

    required: tuple[Term, ...] | None = None
    preferred: tuple[tuple[int, Term], ...] = ()


@dataclass(frozen=True, slots=True)
class Slice:
    """Groups of `size` pods, each within one domain of `level`."""

    level: str
    size: int


@dataclass(frozen=True, slots=True)
class DomainAssignment:
    """A number of pods in one domain of the lowest level."""

    values: tuple[str, ...]
    """Label values of the assignment's levels."""

    count: int


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    """The domains of the pods, in the order of their label paths, which is also the order of the ranks."""

    levels: tuple[str, ...]
    """The hostname alone if that is the lowest level, because it is unique. Else all levels."""

    domains: tuple[DomainAssignment, ...]

    @property
    def count(self) -> int:
        """The number of pods in all domains."""
        return sum(domain.count for domain in self.domains)


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """Why there is no assignment; `str` returns Kueue's message."""

    kind: Kind
    message: str

    fit: int | None = None
    """For `not_fit`: how many pods (or slices) there is room for."""

    wanted: int | None = None
    """For `not_fit`: how many were requested."""

    unit: Literal["pod", "slice"] = "pod"

    total_nodes: int | None = None
    """For `not_fit`: the number of nodes (or lowest domains) checked."""

    excluded: Mapping[str, int] = field(default_factory=dict)
    """For `not_fit`: the number of nodes without room for a single pod, by the reason."""

    layers: tuple[tuple[str, int, int], ...] = ()
    """For `not_fit` of nested slices: level, slices that fit, slices requested."""

    argument: str = ""
    """The level, size or name for the message."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Pods of one kind, and how close to each other they must be."""

    name: str = "main"

    count: int = 1

    requests: Mapping[str, int] = field(default_factory=dict)
    """What one pod takes, in the units of `Node.allocatable`; its slot in `pods` is implied."""

    mode: Mode = "implied"
    """implied: the cluster places by topology without a request. slice_only: only slices are requested."""

    level: str | None = None
    """For required and preferred: the level at which the pods must, or should, lie in one domain."""

    slices: tuple[Slice, ...] = ()
    """From the outermost to the innermost; the innermost size divides the next one, and so on."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity | None = None

    group: str | None = None
    """Of two requests of one group, the smaller one is the leader, placed in the domain of the other, the workers."""

    previous: TopologyAssignment | None = None
    """For a workload that grows or shrinks: its current assignment."""

    min_count: int | None = None
    """The fewest that governance may start with (partial admission); None: all."""

    limits: Mapping[str, int] = field(default_factory=dict)
    """What governance refuses one pod to request more than."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Pods that already run: on a node identified by name, or in a domain of the lowest level, by its values."""

    requests: Mapping[str, int]
    """What one of them takes."""

    count: int = 1
    node: str | None = None
    domain: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Replacement:
    """An unhealthy node, and the pods of each request: only those on that node move."""

    node: str
    """Its value of the lowest level."""

    assignments: Mapping[str, TopologyAssignment]
    """By the request's name."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How domains are chosen, after Kueue's feature gates (KEP 2724)."""

    mixed: bool = True
    """Unconstrained requests take the domains with the least free capacity first (TASProfileMixed); else best fit."""

    balanced: bool = False
    """Preferred requests are spread evenly over the fewest domains (TASBalancedPlacement)."""

    affinity_preferred: bool = False
    """Preferred node affinity comes before capacity (TASRespectNodeAffinityPreferred)."""

    multi_layer: bool = True
    """Inner slices count (TASMultiLayerTopology); else the outermost alone."""

    elastic: bool = False
    """A `previous` assignment is kept, only the difference placed (ElasticJobsViaWorkloadSlicesWithTAS)."""


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A kind of nodes: Kueue's ResourceFlavor with its Topology."""

    name: str = "default"

    node_labels: Mapping[str, str] = field(default_factory=dict)
    """Nodes without these labels are not part of it."""

    taints: tuple[Taint, ...] = ()

    tolerations: tuple[Toleration, ...] = ()
    """Added to those of every request."""

    topology: str | None = None
    """The name of the topology of its nodes; None: governance does not place pods by topology."""


DEFAULT_PROFILE: Final = Profile()
DEFAULT_FLAVOR: Final = ResourceFlavor()
