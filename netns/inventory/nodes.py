"""What a scheduler knows about a host: its labels, what it has room for, and what keeps work away from it.

The words are Kubernetes' (v1.Node): a level of the network is a label key, the part of the network that a node lies in
at that level is the label's value. AWS calls its levels network-node layers, 1 the farthest from the instance, 3 (on
some instance types 4) the switch it is attached to; the labels `topology.k8s.aws/network-node-layer-N` carry them.
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
"""The resource of which every pod takes one, whatever else it asks for."""

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods off a node that do not tolerate it; PreferNoSchedule only discourages, so it is not looked at."""

    key: str
    value: str = ""
    effect: Effect = "NoSchedule"

    def __str__(self) -> str:
        """As Kubernetes writes it: `key=value:effect`, `key:effect` without a value."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Node:
    """One host as a scheduler sees it."""

    name: str

    labels: Mapping[str, str] = field(default_factory=dict)
    """Where it lies, by level, and whatever else selectors ask for."""

    allocatable: Mapping[str, int] = field(default_factory=dict)
    """What it has room for: `cpu` in millicores, `memory` in bytes, `pods` and all others in units."""

    taints: tuple[Taint, ...] = ()

    ready: bool = True
    """Its condition Ready is True."""

    unschedulable: bool = False
    """It is cordoned."""

    instance_type: str = ""
    """EC2's instance type, where the source tells it."""

    zone: str = ""
    """The name of its availability zone, where the source tells it."""

    zone_id: str = ""
    """The id of its zone, the same for all accounts, where the source tells it."""


def layer_label(layer: int) -> str:
    """The label key of network-node layer `layer`."""
    return f"{LAYER_PREFIX}{layer}"
