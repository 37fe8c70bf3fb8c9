"""Why a flavor does not do, as data; `str` gives Kueue's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from netns.governance.model import UNLIMITED
from netns.inventory.node_export import quantities
from netns.inventory.nodes import Taint

NO_MATCHING_FLAVOR: Final = "NoMatchingFlavor"
EXCEEDS_MAX_QUOTA: Final = "ExceedsMaxQuota"
WAITING_FOR_QUOTA: Final = "WaitingForQuota"
TOPOLOGY_FAILED: Final = "TopologyPlacementFailed"
WAITING_FOR_PREEMPTED: Final = "WaitingForPreemptedWorkloads"
MISCONFIGURED: Final = "Misconfigured"
PENDING: Final = "Pending"
PENDING_EVALUATION: Final = "PendingEvaluation"
WAITING_FOR_PODS_READY: Final = "WaitingForPodsReady"

_SEVERITY: Final = ("", TOPOLOGY_FAILED, WAITING_FOR_QUOTA, EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR)


def severity(reason: str) -> int:
    """Return how far a reason is from being cured by waiting."""
    return _SEVERITY.index(reason) if reason in _SEVERITY else 0


@dataclass(frozen=True, slots=True)
class Fact:
    """One reason; the fields that its kind has."""

    kind: str
    """insufficient_unused, exceeds_maximum, untolerated_taint, node_affinity, not_provided, resource_unavailable,
    flavor_not_found, not_nominated or topology."""

    flavor: str = ""
    resource: str = ""
    needed: int = 0
    assumed: int = 0
    request: int = 0
    maximum: int = 0
    taint: Taint | None = None
    text: str = ""

    def data(self) -> dict[str, object]:
        """Return it as plain data."""
        found: dict[str, object] = {"kind": self.kind}
        if self.flavor:
            found["flavor"] = self.flavor
        if self.resource:
            found["resource"] = self.resource
        if self.kind == "insufficient_unused":
            found["needed"] = self.needed
        if self.kind == "exceeds_maximum":
            found |= {"assumed": self.assumed, "request": self.request, "maximum": self.maximum}
        if self.taint is not None:
            found |= {"key": self.taint.key, "value": self.taint.value, "effect": self.taint.effect}
        if self.text:
            found["text"] = self.text
        return found

    def __str__(self) -> str:
        match self.kind:
            case "insufficient_unused":
                needed = amount_text(self.resource, self.needed)
                return f"insufficient unused quota for {self.resource} in flavor {self.flavor}, {needed} more needed"
            case "exceeds_maximum":
                assumed, request, maximum = (
                    amount_text(self.resource, each) for each in (self.assumed, self.request, self.maximum)
                )
                return (
                    f"insufficient quota for {self.resource} in flavor {self.flavor}, previously considered podsets "
                    f"requests ({assumed}) + current podset request ({request}) > maximum capacity ({maximum})"
                )
            case "untolerated_taint":
                return f"untolerated taint {self.taint} in flavor {self.flavor}"
            case "node_affinity":
                return f"flavor {self.flavor} doesn't match node affinity"
            case "not_provided":
                return f"flavor {self.flavor} does not provide resource {self.resource}"
            case "resource_unavailable":
                return f"resource {self.resource} unavailable in ClusterQueue"
            case "flavor_not_found":
                return f"flavor {self.flavor} not found"
            case "not_nominated":
                return f"skipping flavor {self.flavor} as it was not nominated for resource {self.resource}"
            case _:
                return self.text


def amount_text(resource: str, amount: int) -> str:
    """Return an amount in Kubernetes' notation."""
    return "unlimited" if amount >= UNLIMITED else quantities({resource: amount})[resource]
