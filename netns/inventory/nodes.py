"""A host as a scheduler sees it: its labels, its capacity, and its restrictions.

The terms are Kubernetes' (v1.Node): a level of the network is a label key; the label's value is the part of the network
at that level in which the node lies. AWS calls its levels network-node layers, 1 the farthest from the instance, 3 (on
some instance types 4) the switch of the instance; the labels `topology.k8s.aws/network-node-layer-N` contain them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
LAYER_PREFIX: Final = "topology.k8s.aws/network-node-layer-"
ULTRASERVER_LABEL: Final = "topology.k8s.aws/ultraserver-id"
ZONE_LABEL: Final = "topology.k8s.aws/zone-id"
MAX_LAYERS: Final = 4
PODS: Final = "pods"
"""The resource of which every pod takes one, whatever else it requests."""

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True, slots=True)
class Taint:
    """Excludes pods that do not tolerate it from a node; PreferNoSchedule is only a preference, so it is ignored."""

    key: str
    value: str = ""
    effect: Effect = "NoSchedule"

    def __str__(self) -> str:
        """Format as Kubernetes does: `key=value:effect`, `key:effect` without a value."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Node:
    """One host as a scheduler sees it."""

    name: str

    labels: Mapping[str, str] = field(default_factory=dict)
    """Its position, by level, and all other labels for selectors."""

    allocatable: Mapping[str, int] = field(default_factory=dict)
    """Its capacity: `cpu` in millicores, `memory` in bytes, `pods` and all others in units."""

    taints: tuple[Taint, ...] = ()

    ready: bool = True
    """Whether its condition Ready is True."""

    unschedulable: bool = False
    """Whether it is cordoned."""

    instance_type: str = ""
    """EC2's instance type, if known."""

    zone: str = ""
    """The name of its availability zone, if known."""

    zone_id: str = ""
    """The id of its zone, the same for all accounts, if known."""


def layer_label(layer: int) -> str:
    """Return the label key of network-node layer `layer`."""
    return f"{LAYER_PREFIX}{layer}"
