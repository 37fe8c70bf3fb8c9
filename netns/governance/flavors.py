"""The search for flavors: which ones a workload could get, with or without preemption.

Pod sets in order, resources by name; for the first resource of a group, all of the group's resources get one flavor.
The flavors of a group are tried in its order until one is good enough (assignment.py). (Kueue:
scheduler/flavorassigner, KEP 582.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from netns.governance.assignment import (
    Attempt,
    Chosen,
    FlavorAssignment,
    Grade,
    Mode,
    PodSetAssignment,
    Way,
    goes_on,
    preferred,
)
from netns.governance.facts import EXCEEDS_MAX_QUOTA, NO_MATCHING_FLAVOR, WAITING_FOR_QUOTA, Fact, severity
from netns.governance.model import UNLIMITED, ClusterQueue, FlavorResource, ResourceGroup, Tried, Workload, minus, plus
from netns.governance.order import shape
from netns.governance.quota import lowest_fit
from netns.governance.state import State
from netns.governance.topology import place_by_topology, why_not_topology
from netns.inventory.nodes import PODS
from netns.inventory.nodes import Node as Host
from netns.placement.matching import AFFINITY, SELECTOR, why_not
from netns.placement.model import Affinity, PlacementRequest, ResourceFlavor, Term

Nominated = Mapping[str, Mapping[str, str]]
"""Flavors by pod set and resource."""


Simulate = Callable[[Workload, FlavorResource, int], Grade]
"""Whether preemption would make room for an amount of one flavor and resource, and the borrowing level then."""


@dataclass(slots=True)
class Search:
    """The search for one workload."""

    state: State
    workload: Workload
    queue: ClusterQueue
    simulate: Simulate
    nominated: Nominated | None = None
    """Only these flavors."""

    last: Tried | None = None
    _made: FlavorAssignment = field(default_factory=FlavorAssignment)

    def assign(self, counts: Sequence[int] | None = None) -> FlavorAssignment:
        """Return the best assignment; `counts`: of pods, instead of all."""
        self._made = made = FlavorAssignment()
        groups: dict[str, list[int]] = {}
        podsets = [
            self._podset(podset, None if counts is None else counts[i])
            for i, podset in enumerate(self.workload.podsets)
        ]
        for index, each in enumerate(podsets):
            groups.setdefault(each.podset.group or f"#{index}", []).append(index)
        for members in groups.values():
            if not self._assign_group([podsets[index] for index in members], members):
                break
        else:
            if made.mode != Mode.NO_FIT:
                place_by_topology(self.state, self.queue, made)
        made.reason = _overall(made, self.queue)
        made.tried = self._tried(made)
        return made

    def _podset(self, podset: PlacementRequest, count: int | None) -> PodSetAssignment:
        count = self.workload.count_of(podset) if count is None else count
        requests = {resource: min(amount * count, UNLIMITED) for resource, amount in podset.requests.items()}
        if self.queue.group_of(PODS) is not None:
            requests[PODS] = count
        return PodSetAssignment(podset, count, requests)

    def _assign_group(self, members: list[PodSetAssignment], indexes: list[int]) -> bool:
        """Assign the pod sets of one group; return whether the search goes on."""
        requests: dict[str, int] = {}
        for each in members:
            for resource, amount in each.requests.items():
                requests[resource] = plus(requests.get(resource, 0), amount)
        found: dict[str, Chosen] | None = {}
        facts: list[Fact] = []
        seen: dict[str, Attempt] = {}
        for resource in sorted(requests):
            group = self.queue.group_of(resource)
            if group is None and (requests[resource] == 0 or self.state.settings.ignore_undeclared):
                continue
            if found is not None and resource in found:
                continue
            if group is None:
                found, facts = None, [Fact("resource_unavailable", resource=resource)]
                break
            chosen, reasons, attempts = self._find(group, resource, requests, members, first=indexes[0])
            _merge(seen, attempts, group, resource)
            if not chosen:
                found, facts = None, reasons
                break
            assert found is not None  # noqa: S101 - set to None only on the way out
            found |= chosen
            facts += reasons
        for each in members:
            each.flavors = {} if found is None else {res: found[res] for res in each.requests if res in found}
            each.facts, each.attempts = list(facts), [seen[name] for name in sorted(seen)]
            self._made.append(each)
        return not any(each.facts and not each.flavors for each in members)

    def _find(
        self,
        group: ResourceGroup,
        resource: str,
        requests: Mapping[str, int],
        members: Sequence[PodSetAssignment],
        *,
        first: int,
    ) -> tuple[dict[str, Chosen], list[Fact], list[Attempt]]:
        """Return the best flavor of a group by resource, why others or all do not do, and what was looked at."""
        wanted = {name: requests[name] for name in sorted(requests) if name in group.resources}
        best: dict[str, Chosen] = {}
        best_grade: Grade = (Way.NO_FIT, UNLIMITED)
        facts: list[Fact] = []
        attempts: list[Attempt] = []
        looked_at = -1
        for index in range(self._start(first, resource), len(group.flavors)):
            looked_at = index
            name = group.flavors[index][0]
            if self.nominated is not None and not all(
                self.nominated.get(each.podset.name, {}).get(resource) in (name, None) for each in members
            ):
                facts.append(Fact("not_nominated", flavor=name, resource=resource))
                continue
            if (mismatch := self._mismatch(name, members, group)) is not None:
                facts.append(mismatch)
                attempts.append(Attempt(name, Mode.NO_FIT, facts=(mismatch,), reason=NO_MATCHING_FLAVOR))
                continue
            chosen, grade, attempt = self._grade(name, wanted)
            attempts.append(attempt)
            facts += attempt.facts
            if self.state.settings.fungibility and not goes_on(grade, self.queue.fungibility):
                best, best_grade = chosen, grade
                break
            if self._better(grade, best_grade):
                best, best_grade = chosen, grade
                if not self.state.settings.fungibility and grade[0] == Way.FIT:
                    break
        for each in best.values():
            each.tried = -1 if looked_at == len(group.flavors) - 1 else looked_at
        return best, [] if best_grade[0] == Way.FIT else facts, attempts

    def _better(self, grade: Grade, best: Grade) -> bool:
        if self.state.settings.fungibility:
            return preferred(grade, best, self.queue.fungibility)
        return grade[0] > best[0]

    def _start(self, podset: int, resource: str) -> int:
        if not self.state.settings.fungibility or self.last is None or podset >= len(self.last.indexes):
            return 0
        return self.last.indexes[podset].get(resource, -1) + 1

    def _grade(self, name: str, wanted: Mapping[str, int]) -> tuple[dict[str, Chosen], Grade, Attempt]:
        """Return what a flavor would give, and how good it is: the worst over its resources."""
        worst: Grade = (Way.FIT, 0)
        chosen: dict[str, Chosen] = {}
        facts: list[Fact] = []
        reason, highest = "", 0
        for resource, amount in wanted.items():
            (way, level), fact, why = self._fits((name, resource), amount)
            if fact is not None:
                facts.append(fact)
                reason = max(reason, why, key=severity)
            highest = max(highest, level)
            if preferred(worst, (way, level), self.queue.fungibility):
                worst = (way, level)
            if worst[0] != Way.NO_FIT:
                chosen[resource] = Chosen(name, way.mode, level)
        way = worst[0]
        return chosen, worst, Attempt(name, way.mode, highest, way.possibility, tuple(facts), reason)

    def _fits(self, fr: FlavorResource, request: int) -> tuple[Grade, Fact | None, str]:
        node = self.state.nodes[self.queue.name]
        assumed = self._made.usage.get(fr, 0)
        value, most = plus(assumed, request), node.potential(fr)
        if value > most:
            fact = Fact("exceeds_maximum", fr[0], fr[1], assumed=assumed, request=request, maximum=most)
            return (Way.NO_FIT, 0), fact, EXCEEDS_MAX_QUOTA
        level, below_root = lowest_fit(node, fr, value)
        available = node.available(fr)
        if value <= available:
            return (Way.FIT, level), None, ""
        fact = Fact("insufficient_unused", fr[0], fr[1], needed=minus(value, available))
        if node.nominal(fr) >= value or below_root or self._may_preempt_borrowing():
            grade = self.simulate(self.workload, fr, value)
            return grade, fact, "" if grade[0] != Way.NO_FIT else WAITING_FOR_QUOTA
        return (Way.NO_FIT, level), fact, WAITING_FOR_QUOTA

    def _may_preempt_borrowing(self) -> bool:
        fair = self.state.settings.fair_sharing is not None
        return self.queue.preemption.while_borrowing or (fair and self.queue.preemption.reclaim != "Never")

    def _mismatch(self, name: str, members: Sequence[PodSetAssignment], group: ResourceGroup) -> Fact | None:
        """Return why the pods cannot run on a flavor's nodes."""
        flavor = self.state.flavors.get(name)
        if flavor is None:
            return Fact("flavor_not_found", flavor=name)
        for each in members:
            text = why_not_topology(self.state, self.queue, each.podset, flavor, group)
            if text is not None:
                return Fact("topology", flavor=name, text=text)
            if (fact := _pod_mismatch(each.podset, flavor)) is not None:
                return fact
        return None

    def _tried(self, made: FlavorAssignment) -> Tried:
        return Tried(
            tuple({res: chosen.tried for res, chosen in each.flavors.items()} for each in made.podsets),
            shape(self.workload, self.state.settings),
        )


def still_valid(tried: Tried, state: State, workload: Workload) -> bool:
    """Return whether a search goes on where it ended."""
    return not state.settings.keep_scan or tried.shape == shape(workload, state.settings)


def _pod_mismatch(podset: PlacementRequest, flavor: ResourceFlavor) -> Fact | None:
    """Return why a pod may not run on the flavor's nodes, looking only at the labels that the flavor has."""
    keys = flavor.node_labels.keys()
    selector = {key: value for key, value in podset.node_selector.items() if key in keys}
    affinity = None
    if podset.affinity is not None and podset.affinity.required is not None:
        terms = [
            Term(tuple(each for each in term.expressions if each.key in keys)) for term in podset.affinity.required
        ]
        if terms and all(term.expressions for term in terms):
            affinity = Affinity(required=tuple(terms))
    host = Host(flavor.name, labels=flavor.node_labels, taints=flavor.taints)
    tolerations = (*podset.tolerations, *flavor.tolerations)
    reason = why_not(host, tolerations=tolerations, selector=selector, affinity=affinity)
    if reason is None:
        return None
    if reason in (SELECTOR, AFFINITY):
        return Fact("node_affinity", flavor=flavor.name)
    taint = next(each for each in flavor.taints if f"taint {each}" == reason)
    return Fact("untolerated_taint", flavor=flavor.name, taint=taint)


def _merge(seen: dict[str, Attempt], attempts: Sequence[Attempt], group: ResourceGroup, resource: str) -> None:
    """Add what was looked at for a resource; a flavor of its group that was not, does not provide it."""
    for each in attempts:
        known = seen.get(each.flavor)
        if known is None:
            seen[each.flavor] = each
            continue
        seen[each.flavor] = Attempt(
            each.flavor,
            min(known.mode, each.mode),
            max(known.level, each.level),
            min(filter(None, (known.possibility, each.possibility)), default=None),
            tuple(dict.fromkeys((*known.facts, *each.facts))),
            max(known.reason, each.reason, key=severity),
        )
    if attempts:
        tried = {each.flavor for each in attempts}
        for name in {name for name, _ in group.flavors} & seen.keys() - tried:
            seen[name].mode, seen[name].reason = Mode.NO_FIT, NO_MATCHING_FLAVOR
            seen[name].facts += (Fact("not_provided", flavor=name, resource=resource),)


def _overall(made: FlavorAssignment, queue: ClusterQueue) -> str:
    """Return why a workload does not fit: per group the mildest reason, of all groups and pod sets the worst.

    Empty if no flavor is to blame: a resource that no group covers.
    """
    if made.mode != Mode.NO_FIT:
        return ""
    worst = ""
    for podset in made.podsets:
        if podset.mode != Mode.NO_FIT:
            continue
        if not podset.attempts:
            worst = max(worst, NO_MATCHING_FLAVOR, key=severity)
            continue
        mildest: dict[int, str] = {}
        for number, each in enumerate(podset.attempts):
            if each.mode != Mode.NO_FIT:
                continue
            homes = [i for i, group in enumerate(queue.groups) if any(name == each.flavor for name, _ in group.flavors)]
            for home in homes or [-1 - number]:
                mildest[home] = min(mildest.get(home, each.reason), each.reason, key=severity)
        worst = max([worst, *mildest.values()], key=severity)
    return worst
