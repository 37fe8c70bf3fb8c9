"""The weighted dominant resource share of a node: how much more than its own it uses, beside others.

Per resource: 1000 * borrowed / lendable to its parent; the largest of these, divided by the weight. 0 if nothing is
borrowed; infinite with weight 0. (Kueue: cache/scheduler/fair_sharing.go, KEP 1714.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from netns.governance.model import FlavorResource, minus, plus
from netns.governance.quota import QuotaNode


@dataclass(frozen=True, slots=True)
class Share:
    """Comparable by `rank`: the lower one is scheduled first, the higher one preempted first."""

    ratio: float = 0.0
    weight: float = 1.0
    resource: str = ""
    borrowed: frozenset[FlavorResource] = frozenset()

    @property
    def value(self) -> float:
        """The share; infinite for a node with weight 0 that borrows."""
        if self.ratio == 0:
            return 0.0
        return math.inf if self.weight == 0 else self.ratio / self.weight

    @property
    def rounded(self) -> int:
        """As Kueue reports it."""
        return 2**63 - 1 if math.isinf(self.value) else math.ceil(self.value)

    @property
    def rank(self) -> tuple[bool, float]:
        """Two infinite shares compare by their ratios."""
        infinite = math.isinf(self.value)
        return infinite, self.ratio if infinite else self.value

    def borrows_on(self, requested: Mapping[FlavorResource, int]) -> bool:
        """Return whether it borrows what a request asks for."""
        return any(requested.get(fr, 0) > 0 for fr in self.borrowed)


NOTHING: Final = Share(ratio=-1.0)
"""Lower than all shares."""


def share_of(node: QuotaNode, more: Mapping[FlavorResource, int] | None = None) -> Share:
    """Return the share of a node, with so much more used. A root has none."""
    if node.parent is None:
        return Share(weight=node.weight)
    if more is None:
        if not isinstance(node.share, Share):
            node.share = _computed(node, {})
        return node.share
    return _computed(node, more)


def _computed(node: QuotaNode, more: Mapping[FlavorResource, int]) -> Share:
    assert node.parent is not None  # noqa: S101 - a root has no share
    borrowed: dict[str, int] = {}
    where = []
    for fr, total in node.total.items():
        amount = plus(node.usage.get(fr, 0), more.get(fr, 0)) if more else node.usage.get(fr, 0)
        if amount > total:
            borrowed[fr[1]] = plus(borrowed.get(fr[1], 0), minus(amount, total))
            where.append(fr)
    if not where:
        return Share(weight=node.weight)
    lendable = node.parent.lendable()
    best, named = 0.0, ""
    for resource, amount in borrowed.items():
        room = lendable.get(resource, 0)
        if room > 0:
            ratio = amount * 1000.0 / room
            if ratio > best or (ratio == best and resource < named):
                best, named = ratio, resource
    return Share(best, node.weight, named, frozenset(where))
