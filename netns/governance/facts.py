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
        amounts = _AMOUNTS.get(self.kind, ())
        for name in ("flavor", "resource", *amounts, "text"):
            value = getattr(self, name)
            if value or name in amounts:
                found[name] = value
        if self.taint is not None:
            found |= {"key": self.taint.key, "value": self.taint.value, "effect": self.taint.effect}
        return found

    def __str__(self) -> str:
        amounts = {name: amount_text(self.resource, getattr(self, name)) for name in _AMOUNTS.get(self.kind, ())}
        if self.kind not in _TEXTS:
            return self.text
        return _TEXTS[self.kind].format(f=self.flavor, r=self.resource, taint=self.taint, **amounts)


_AMOUNTS: Final = {"insufficient_unused": ("needed",), "exceeds_maximum": ("assumed", "request", "maximum")}
_TEXTS: Final = {
    "insufficient_unused": "insufficient unused quota for {r} in flavor {f}, {needed} more needed",
    "exceeds_maximum": "insufficient quota for {r} in flavor {f}, previously considered podsets requests ({assumed}) "
    "+ current podset request ({request}) > maximum capacity ({maximum})",
    "untolerated_taint": "untolerated taint {taint} in flavor {f}",
    "node_affinity": "flavor {f} doesn't match node affinity",
    "not_provided": "flavor {f} does not provide resource {r}",
    "resource_unavailable": "resource {r} unavailable in ClusterQueue",
    "flavor_not_found": "flavor {f} not found",
    "not_nominated": "skipping flavor {f} as it was not nominated for resource {r}",
}
"""Kueue's words by kind; of `topology` they are the text."""


def amount_text(resource: str, amount: int) -> str:
    """Return an amount in Kubernetes' notation."""
    return "unlimited" if amount >= UNLIMITED else quantities({resource: amount})[resource]
