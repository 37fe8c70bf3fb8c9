"""The tree of quotas: cohorts, and cluster queues as its leaves. All amounts are of one flavor and resource.

A node *keeps* what exceeds its lending limit; the rest of its total belongs to the parent, which lends it. Usage fills
what is kept first, and only what exceeds that is the parent's usage. So `free` walks up: free here, and what the parent
has, at most up to the borrowing limit. (Kueue: cache/scheduler/resource_node.go, KEP 79 and 1224.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from netns.governance.model import ClusterQueue, Cohort, FlavorResource, Quantities, Quota, ResourceGroup, minus, plus

_NO_QUOTA = Quota()


class QuotaNode:
    """A cluster queue or a cohort in the tree."""

    __slots__ = (
        "_lendable", "_potential", "children", "height", "is_queue", "kept", "name", "parent", "quotas", "share",
        "total", "usage", "weight",
    )  # fmt: skip

    def __init__(
        self, name: str, groups: Iterable[ResourceGroup] = (), *, weight: float = 1.0, is_queue: bool = False
    ) -> None:
        self.name, self.weight, self.is_queue = name, weight, is_queue
        self.quotas: dict[FlavorResource, Quota] = {
            (flavor, resource): quota
            for group in groups
            for flavor, quotas in group.flavors
            for resource, quota in quotas.items()
        }
        self.parent: QuotaNode | None = None
        self.children: list[QuotaNode] = []
        self.total: Quantities = {fr: quota.nominal for fr, quota in self.quotas.items()}
        self.kept: Quantities = {}
        self.usage: Quantities = {}
        self.height = 0
        """0 of a queue, 1 of a cohort with queues alone, else 1 more than the highest child."""
        self.share: object = None
        """Its share by now, if share.py has computed it."""
        self._potential: Quantities = {}
        self._lendable: dict[str, int] | None = None

    def __repr__(self) -> str:
        return f"<{'queue' if self.is_queue else 'cohort'} {self.name}>"

    @property
    def root(self) -> QuotaNode:
        """The top of its tree."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def above(self) -> Iterator[QuotaNode]:
        """Yield its parent, and so on up to the root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def queues(self) -> Iterator[QuotaNode]:
        """Yield the queues in its subtree."""
        if self.is_queue:
            yield self
        for child in self.children:
            yield from child.queues()

    def nominal(self, fr: FlavorResource) -> int:
        """Return its own quota."""
        return self.quotas.get(fr, _NO_QUOTA).nominal

    def kept_free(self, fr: FlavorResource) -> int:
        """Return what nobody else can use, and it does not."""
        return max(0, minus(self.kept.get(fr, 0), self.usage.get(fr, 0)))

    def free(self, fr: FlavorResource) -> int:
        """Return what it could use more; negative if lent too much."""
        total, usage = self.total.get(fr, 0), self.usage.get(fr, 0)
        if self.parent is None:
            return minus(total, usage)
        above = self.parent.free(fr)
        limit = self.quotas.get(fr, _NO_QUOTA).borrowing_limit
        if limit is not None:
            kept = self.kept.get(fr, 0)
            lent = minus(minus(total, kept), max(0, minus(usage, kept)))
            above = min(above, plus(lent, limit))
        return plus(self.kept_free(fr), above)

    def available(self, fr: FlavorResource) -> int:
        """Return what it could use more, at least 0."""
        return max(0, self.free(fr))

    def potential(self, fr: FlavorResource) -> int:
        """Return the most that it could ever use."""
        found = self._potential.get(fr)
        if found is None:
            found = self.total.get(fr, 0)
            if self.parent is not None:
                limit = self.quotas.get(fr, _NO_QUOTA).borrowing_limit
                most = plus(self.kept.get(fr, 0), self.parent.potential(fr))
                found = most if limit is None else min(plus(found, limit), most)
            self._potential[fr] = found
        return found

    def lendable(self) -> Mapping[str, int]:
        """Return, by resource, the most that it could ever use of all flavors in the tree."""
        if self._lendable is None:
            found: dict[str, int] = {}
            for fr in self.root.total:
                found[fr[1]] = plus(found.get(fr[1], 0), self.potential(fr))
            self._lendable = found
        return self._lendable

    def borrows(self, fr: FlavorResource, more: int = 0) -> bool:
        """Return whether it would use more than its total, with so much more."""
        return self.total.get(fr, 0) < plus(self.usage.get(fr, 0), more)

    def within(self, contested: Iterable[FlavorResource]) -> bool:
        """Return whether it uses no more than its total of any of these."""
        return not any(self.borrows(fr) for fr in contested)

    def add(self, fr: FlavorResource, amount: int) -> None:
        """Use more. What exceeds the free part of what is kept, the parent uses more, too."""
        node: QuotaNode | None = self
        while node is not None and amount > 0:
            used = node.usage.get(fr, 0)
            node.usage[fr], node.share = used + amount, None
            if node.kept or used < 0:  # below 0 while somebody is taken out twice to see what would be
                amount -= max(0, node.kept.get(fr, 0) - used)
            node = node.parent

    def remove(self, fr: FlavorResource, amount: int) -> None:
        """Use less. The parent uses less of what lay above what is kept."""
        node: QuotaNode | None = self
        while node is not None and amount > 0:
            used = node.usage.get(fr, 0)
            node.usage[fr], node.share = used - amount, None
            amount = min(amount, used - node.kept.get(fr, 0))
            node = node.parent

    def add_all(self, amounts: Mapping[FlavorResource, int]) -> None:
        """Use more of several."""
        for fr, amount in amounts.items():
            self.add(fr, amount)

    def remove_all(self, amounts: Mapping[FlavorResource, int]) -> None:
        """Use less of several."""
        for fr, amount in amounts.items():
            self.remove(fr, amount)

    def fits(self, amounts: Mapping[FlavorResource, int]) -> bool:
        """Return whether all these are available."""
        return all(amount <= self.available(fr) for fr, amount in amounts.items())


def lowest_fit(queue: QuotaNode, fr: FlavorResource, amount: int) -> tuple[int, bool]:
    """Return the borrowing level of a request, and whether what holds it is below the root.

    The level is the height of the lowest subtree on the way up that can hold the request within its total.
    """
    if not queue.borrows(fr, amount) or queue.parent is None:
        return 0, queue.parent is not None
    rest = minus(amount, queue.kept_free(fr))
    for node in queue.above():
        if not node.borrows(fr, rest):
            return node.height, node.parent is not None
        rest = minus(rest, node.kept_free(fr))
    return queue.root.height, False


def fit_in_total(node: QuotaNode, amounts: Mapping[FlavorResource, int]) -> tuple[bool, Quantities]:
    """Return whether a node could hold all these within its total, and what exceeds what it keeps."""
    fits = not any(node.borrows(fr, amount) for fr, amount in amounts.items())
    return fits, {fr: max(0, minus(amount, node.kept_free(fr))) for fr, amount in amounts.items()}


def build(
    queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort]
) -> tuple[dict[str, QuotaNode], dict[str, QuotaNode]]:
    """Return the nodes of the queues and of the cohorts, by name. Queues whose cohorts are a cycle are left out."""
    known = {cohort.name: cohort for cohort in cohorts}
    for name in [each.cohort for each in queues] + [each.parent for each in list(known.values())]:
        if name and name not in known:
            known[name] = Cohort(name)
    rings = {name for name in known if _circular(name, known)}
    found = {each.name: QuotaNode(each.name, each.groups, weight=each.weight) for each in known.values()}
    leaves = {}
    for name, node in found.items():
        parent = known[name].parent
        if parent and name not in rings:
            _link(found[parent], node)
    for queue in queues:
        if queue.cohort not in rings:
            leaves[queue.name] = QuotaNode(queue.name, queue.groups, weight=queue.weight, is_queue=True)
            if queue.cohort:
                _link(found[queue.cohort], leaves[queue.name])
    for node in (*found.values(), *leaves.values()):
        if node.parent is None:
            _sum_up(node)
    return leaves, found


def _link(parent: QuotaNode, child: QuotaNode) -> None:
    child.parent = parent
    parent.children.append(child)


def _circular(name: str, known: Mapping[str, Cohort]) -> bool:
    seen: set[str] = set()
    at: str | None = name
    while at:
        if at in seen:
            return True
        seen.add(at)
        at = known[at].parent
    return False


def _sum_up(node: QuotaNode) -> None:
    """Set total, kept and height of a subtree."""
    for child in node.children:
        _sum_up(child)
        for fr, total in child.total.items():
            node.total[fr] = plus(node.total.get(fr, 0), minus(total, child.kept.get(fr, 0)))
    node.height = max((child.height + 1 for child in node.children), default=0)
    for fr, quota in node.quotas.items():
        if quota.lending_limit is not None:
            node.kept[fr] = max(0, minus(node.total[fr], quota.lending_limit))
