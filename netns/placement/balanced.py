"""Balanced placement: a preferred request spread evenly over the fewest domains (Kueue's TASBalancedPlacement).

The candidate domains lie under one domain of the level above the preferred one, so that nothing is spread wider than
with best fit. For each such family, the fewest domains that hold the request, found greedily, determine how evenly it
could be spread: `threshold` slices in each. Domains without room for the threshold are dropped. The family with the
highest threshold wins, among equals the one with the fewest domains. From it, dynamic programming selects the set with
the least room that still holds everything; each of its domains gets the threshold, and the first ones the remainder.

Works on copies of the domains, so that best fit can use the unchanged originals if this fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from netns.placement.choose import ResolvedRequest, by_room, by_room_led
from netns.placement.domain import Domain, fill_up, lower, path
from netns.placement.tree import Tree


@dataclass(frozen=True, slots=True)
class _Greedy:
    """The fewest domains that hold a request: how many, and the last ones taken with and without the leader."""

    count: int
    last_led: Domain | None
    last: Domain | None


def balance(tree: Tree, resolved: ResolvedRequest) -> tuple[int, list[Domain]] | None:
    """Return level and domains with their shares, or None: then the request is placed by best fit."""
    family, threshold = _best_family(tree, resolved)
    if threshold <= 0:
        return None
    level = resolved.level
    if resolved.level < resolved.slice_level:
        chosen = _fewest(family, resolved, by_evenness=True)
        if chosen is None:
            return None
        family, level = lower(chosen), resolved.level + 1
    given = _spread(family, resolved, threshold)
    return None if given is None else (level, given)


def _best_family(tree: Tree, resolved: ResolvedRequest) -> tuple[list[Domain], int]:
    """Return copies of the domains of the best family, pruned, and its threshold; 0 if there is none."""
    best: list[Domain] = []
    best_threshold = best_count = 0
    for siblings in _families(tree, resolved):
        domains, threshold = _pruned(siblings, resolved, at_least=best_threshold)
        fit = _greedy(domains, resolved) if threshold else None
        if fit is None:
            continue
        if threshold > best_threshold or fit.count < best_count:
            best, best_threshold, best_count = domains, threshold, fit.count
    return best, best_threshold


def _families(tree: Tree, resolved: ResolvedRequest) -> Iterable[list[Domain]]:
    if resolved.level == 0:
        return [tree.at(0)]
    return [above.children for above in tree.at(resolved.level - 1)]


def _pruned(siblings: Sequence[Domain], resolved: ResolvedRequest, *, at_least: int) -> tuple[list[Domain], int]:
    """Return copies without the domains that lack room for the threshold, and the threshold; 0 if none is possible.

    A second try with a lower threshold leaves room for the leader.
    """
    domains = [domain.copy() for domain in siblings]
    fit = _greedy(lower(domains) if resolved.level < resolved.slice_level else domains, resolved)
    if fit is None:
        return [], 0
    threshold = resolved.slices // max(fit.count, 1)
    if fit.last_led is not None:
        threshold = min(threshold, fit.last_led.slices_led)
    if fit.last is not None:
        threshold = min(threshold, fit.last.slices)
    reserved = min(threshold, fit.last.slices_led) if resolved.leaders and fit.last is not None else threshold
    if threshold < at_least or threshold == 0:
        return [], 0
    _prune(domains, threshold, resolved)
    if _greedy(domains, resolved) is None and max(at_least, 1) <= reserved < threshold:
        threshold = reserved
        domains = [domain.copy() for domain in siblings]
        _prune(domains, threshold, resolved)
    return domains, threshold


def _greedy(domains: Sequence[Domain], resolved: ResolvedRequest) -> _Greedy | None:
    """Return how many domains are needed, those with most room first; None if all together are too small."""
    left, count = resolved.slices, 0
    last_led: Domain | None = None
    rest: Sequence[Domain] = domains
    if resolved.leaders:
        led = by_room_led(domains, least_free=False, scored=resolved.scored)
        if not led or not led[0].leaders:
            return None
        last_led, count = led[0], 1
        rest = [domain for domain in domains if domain is not last_led]
        left -= last_led.slices_led
    last: Domain | None = None
    for domain in by_room(rest, least_free=False, scored=resolved.scored):
        if left <= 0 or domain.slices <= 0:
            break
        last, count = domain, count + 1
        left -= domain.slices
    return None if left > 0 else _Greedy(count, last_led, last)


def _fewest(domains: Sequence[Domain], resolved: ResolvedRequest, *, by_evenness: bool) -> list[Domain] | None:
    """Return the set with the least room of those with the greedy number of domains that hold the request.

    `sets[n]` contains, for n domains and the leaders and pods that remain to be placed, the first set found.
    """
    fit = _greedy(domains, resolved)
    if fit is None:
        return None
    sets: list[dict[tuple[int, int], tuple[Domain, ...]]] = [{} for _ in range(fit.count + 1)]
    sets[0][resolved.leaders, resolved.slices * resolved.slice_size] = ()
    for domain in sorted(domains, key=_even if by_evenness else path):
        for number in range(fit.count, 0, -1):
            for (leaders, pods), chosen in sorted(sets[number - 1].items(), key=itemgetter(0)):
                if leaders <= 0 and pods <= 0:
                    continue
                if leaders > 0 and domain.leaders > 0:
                    sets[number].setdefault((leaders - domain.leaders, pods - domain.pods_led), (*chosen, domain))
                if domain.slices > 0:
                    sets[number].setdefault((leaders, pods - domain.pods), (*chosen, domain))
    enough = [(pods, chosen) for (leaders, pods), chosen in sets[fit.count].items() if leaders == 0 and pods <= 0]
    return list(max(enough, key=itemgetter(0))[1]) if enough else None


def _spread(domains: Sequence[Domain], resolved: ResolvedRequest, threshold: int) -> list[Domain] | None:
    """Return the domains with the threshold each and the remainder on the first ones; None if they lack room."""
    chosen = _fewest(domains, resolved, by_evenness=False)
    if chosen is None or resolved.slices < len(chosen) * threshold:
        return None
    extra, leaders = resolved.slices - len(chosen) * threshold, resolved.leaders
    chosen = by_room_led(chosen, least_free=False, scored=resolved.scored)
    for domain in chosen:
        hosts = 1 if leaders > 0 else 0
        more = min((domain.slices_led if hosts else domain.slices) - threshold, extra)
        leaders -= hosts
        extra -= more
        domain.leaders = hosts
        domain.slices = domain.slices_led = threshold + more
        domain.pods = domain.slices * resolved.slice_size
        domain.pods_led = domain.pods - hosts
    return None if extra > 0 or leaders > 0 else chosen


def _prune(domains: Sequence[Domain], threshold: int, resolved: ResolvedRequest) -> None:
    """Remove what has no room for `threshold` slices, first below, then at the level of `domains`."""
    for child in lower(domains):
        _prune_one(child, threshold, resolved)
    for domain in domains:
        fill_up(
            domain,
            slice_size=resolved.slice_size,
            slice_level=resolved.slice_level,
            level=resolved.level,
            inner={},
            led=resolved.leaders > 0,
        )
        _prune_one(domain, threshold, resolved)


def _prune_one(domain: Domain, threshold: int, resolved: ResolvedRequest) -> None:
    if domain.slices < threshold:
        _clear(domain, leader_only=False)
    elif resolved.leaders and domain.leaders and domain.slices_led < threshold:
        _clear(domain, leader_only=True)


def _clear(domain: Domain, *, leader_only: bool) -> None:
    domain.leaders = domain.pods_led = domain.slices_led = 0
    if not leader_only:
        domain.pods = domain.slices = 0
    for child in domain.children:
        _clear(child, leader_only=leader_only)


def _even(domain: Domain) -> tuple[int, int, float, tuple[str, ...]]:
    """Sort key: most room first, then the one whose room is spread most evenly over its children (by entropy)."""
    total = sum(child.pods for child in domain.children)
    shares = [child.pods / total for child in domain.children if child.pods > 0] if total else []
    return -domain.leaders, -domain.slices_led, sum(share * math.log2(share) for share in shares), domain.values
