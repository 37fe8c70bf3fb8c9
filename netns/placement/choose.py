"""The order of domains, and the choice of the level and the domains for the pods (Kueue's phase 2a).

Best fit starts with the domain that has most room for slices, and swaps the last one for the smallest that holds the
rest. Least free capacity starts with the domain that has least. Among domains with equal room for slices both prefer
less room for pods, and then the label path. (pkg/cache/scheduler/tas_flavor_snapshot.go and KEP 2724 of Kueue.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from netns.placement.domain import Domain
from netns.placement.tree import Tree

Room = Callable[[Domain], int]

slices_of: Final[Room] = attrgetter("slices")
slices_led_of: Final[Room] = attrgetter("slices_led")
"""The room for slices beside the leader."""
_room_led: Final = attrgetter("slices_led", "pods_led")


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """A request, resolved against the levels of a tree."""

    count: int
    level: int
    """The level at which its pods must, or should, lie in one domain."""
    slice_size: int
    slice_level: int
    inner: Mapping[int, int]
    """Sizes of nested slices, by level."""
    leaders: int
    """1 if a leader goes with the pods, else 0."""
    required: bool
    unconstrained: bool
    least_free: bool
    """Whether domains with little room come first."""
    scored: bool
    """Whether preferred affinity comes before room."""

    @property
    def slices(self) -> int:
        """The number of slices of the pods."""
        return self.count // self.slice_size


@dataclass(frozen=True, slots=True)
class Shortfall:
    """There is not enough room; contains the number of slices (or leaders) with room at `level`."""

    fit: int
    level: int


def by_room(domains: Sequence[Domain], *, least_free: bool, scored: bool) -> list[Domain]:
    """Sort for pods alone. `domains` are in the order of their label paths, which stays that of equals.

    The key is one number where possible, slices above pods, because tuples would add as many objects to collect.
    """
    sign = 1 if least_free else -1
    if scored:
        return sorted(domains, key=lambda domain: (-domain.score, sign * domain.slices, domain.pods))
    return sorted(domains, key=lambda domain: (sign * domain.slices << 48) + domain.pods)


def by_room_led(domains: Sequence[Domain], *, least_free: bool, scored: bool) -> list[Domain]:
    """Sort for pods with a leader: domains that have room for it first. Else as `by_room`."""
    sign = 1 if least_free else -1
    if scored:
        return sorted(
            domains, key=lambda domain: (-domain.leaders, -domain.score, sign * domain.slices_led, domain.pods_led)
        )
    return sorted(
        domains, key=lambda domain: (-domain.leaders << 96) + (sign * domain.slices_led << 48) + domain.pods_led
    )


def smallest(domains: Sequence[Domain], needed: int, *, room: Room, scored: bool, leaders: int = 0) -> Domain:
    """Return the first of those with the least sufficient room; the first of all if none is sufficient.

    If affinity comes before room, only those before the first one with another score are considered; of them, only
    those with room for the leaders, as in Kueue (topAffinityTierDomains, findBestFitDomainBy).
    """
    best = domains[0]
    best_room = room(best)
    for domain in domains:
        if scored and domain.score != domains[0].score:
            break
        if domain.leaders >= leaders and needed <= room(domain) < best_room:
            best, best_room = domain, room(domain)
    return best


def leader_first(domains: list[Domain], needed: int, leaders: int, *, room: Room, room_led: Room) -> list[Domain]:
    """Move to the front a domain that has room for the leader and leaves enough room for the rest.

    The cost of a leader is summed up as the lowest cost in any child; so, while descending, the child must be one for
    which the remaining room suffices. Unchanged if there is no leader, or no such domain.
    """
    if leaders == 0:
        return domains
    spare = sum(map(room, domains)) - needed
    for index, domain in enumerate(domains):
        if domain.leaders >= leaders and room(domain) - room_led(domain) <= spare:
            return [domain, *domains[:index], *domains[index + 1 :]]
    return domains


def choose(tree: Tree, resolved: ResolvedRequest) -> tuple[int, list[Domain]] | Shortfall:
    """Return the level of the placement, and domains of it that hold the pods; the level has at least one domain.

    It is one domain of the requested level. If there is none, a preferred request tries the levels above, and takes at
    the top as few domains as possible; an unconstrained one does the latter at its starting level.
    """
    for level in range(resolved.level, -1, -1):
        domains = tree.at(level)
        single = _single_scored(domains, resolved) if resolved.scored else _single(domains, resolved)
        if single is not None:
            return level, [single]
        if resolved.required:
            return Shortfall(
                by_room_led(domains, least_free=resolved.least_free, scored=resolved.scored)[0].slices, level
            )
        if resolved.unconstrained:
            break
    several = _several(domains, resolved)
    return Shortfall(several, level) if isinstance(several, int) else (level, several)


def _single(domains: Sequence[Domain], resolved: ResolvedRequest) -> Domain | None:
    """Return the domain with the least room that holds everything; best fit and least free capacity agree on it."""
    slices, leaders = resolved.slices, resolved.leaders
    enough = [domain for domain in domains if domain.slices_led >= slices and domain.leaders >= leaders]
    return min(enough, key=_room_led) if enough else None


def _single_scored(domains: Sequence[Domain], resolved: ResolvedRequest) -> Domain | None:
    """The same if preferred affinity comes first: of the domains with the highest score that hold everything.

    A preferred request considers only those with the highest score, and goes up a level rather than down in score.
    """
    ordered = by_room_led(domains, least_free=resolved.least_free, scored=True)
    enough = [
        domain for domain in ordered if domain.slices_led >= resolved.slices and domain.leaders >= resolved.leaders
    ]
    if not enough or not (resolved.required or resolved.least_free or enough[0] is ordered[0]):
        return None
    if resolved.least_free:
        return enough[0]
    return min((domain for domain in enough if domain.score == enough[0].score), key=_room_led)


def _several(in_order: list[Domain], resolved: ResolvedRequest) -> list[Domain] | int:
    """Return domains in order until all is placed; the number that fits if they are too few."""
    chosen: list[Domain] = []
    left = resolved.slices
    if resolved.leaders:
        domains = by_room_led(in_order, least_free=resolved.least_free, scored=resolved.scored)
        domains = leader_first(domains, left, resolved.leaders, room=slices_of, room_led=slices_led_of)
        if not domains[0].leaders:
            return 0
        host = domains[0]
        if not resolved.least_free and host.slices_led >= left:
            host = smallest(domains, left, room=slices_led_of, scored=resolved.scored, leaders=resolved.leaders)
        chosen.append(host)
        left -= host.slices_led
    others = [domain for domain in in_order if domain is not chosen[0]] if chosen else in_order
    rest = by_room(others, least_free=resolved.least_free, scored=resolved.scored)
    for index, domain in enumerate(rest):
        if left <= 0:
            break
        last = not resolved.least_free and domain.slices >= left
        taken = smallest(rest[index:], left, room=slices_of, scored=resolved.scored) if last else domain
        chosen.append(taken)
        left -= taken.slices
    return resolved.slices - left if left > 0 else chosen
