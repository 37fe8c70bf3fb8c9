"""The order of domains, and the choice of the level and the domains for the pods (Kueue's phase 2a).

Best fit starts with the domain that has most room for slices, and swaps the last one for the smallest that holds the
rest. Least free capacity starts with the domain that has least. Among domains with equal room for slices both prefer
less room for pods, and then the label path. (pkg/cache/scheduler/tas_flavor_snapshot.go and KEP 2724 of Kueue.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from netns.placement.domain import Domain
from netns.placement.tree import Tree

Room = Callable[[Domain], int]


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


def by_room(parts: Sequence[Domain], *, least_free: bool, scored: bool) -> list[Domain]:
    """Sort for pods alone. `parts` are in the order of their label paths, which stays that of equals.

    The key is one number where possible, slices above pods, because tuples would add as many objects to collect.
    """
    sign = 1 if least_free else -1
    if scored:
        return sorted(parts, key=lambda part: (-part.score, sign * part.slices, part.pods))
    return sorted(parts, key=lambda part: (sign * part.slices << 48) + part.pods)


def by_room_led(parts: Sequence[Domain], *, least_free: bool, scored: bool) -> list[Domain]:
    """Sort for pods with a leader: domains that have room for it first. Else as `by_room`."""
    sign = 1 if least_free else -1
    if scored:
        return sorted(parts, key=lambda part: (-part.leaders, -part.score, sign * part.slices_led, part.pods_led))
    return sorted(parts, key=lambda part: (-part.leaders << 96) + (sign * part.slices_led << 48) + part.pods_led)


def smallest(parts: Sequence[Domain], needed: int, *, room: Room, scored: bool) -> Domain:
    """Return the first of those with the least sufficient room; the first of all if none is sufficient.

    If affinity comes before room, only domains with the first one's score are considered.
    """
    best = parts[0]
    best_room = room(best)
    for part in parts:
        if scored and part.score != parts[0].score:
            break
        if needed <= room(part) < best_room:
            best, best_room = part, room(part)
    return best


def slices_of(part: Domain) -> int:
    """Return the room for slices."""
    return part.slices


def slices_led_of(part: Domain) -> int:
    """Return the room for slices beside the leader."""
    return part.slices_led


def leader_first(parts: list[Domain], needed: int, leaders: int, *, room: Room, room_led: Room) -> list[Domain]:
    """Move to the front a domain that has room for the leader and leaves enough room for the rest.

    The cost of a leader is summed up as the lowest cost in any child; so, while descending, the child must be one for
    which the remaining room suffices. Unchanged if there is no leader, or no such domain.
    """
    if leaders == 0:
        return parts
    spare = sum(map(room, parts)) - needed
    for index, part in enumerate(parts):
        if part.leaders >= leaders and room(part) - room_led(part) <= spare:
            return [part, *parts[:index], *parts[index + 1 :]]
    return parts


def choose(tree: Tree, ask: ResolvedRequest) -> tuple[int, list[Domain]] | Shortfall:
    """Return the level of the placement, and domains of it that hold the pods; the level has at least one domain.

    It is one domain of the requested level. If there is none, a preferred request tries the levels above, and takes at
    the top as few domains as possible; an unconstrained one does the latter at its starting level.
    """
    for level in range(ask.level, -1, -1):
        parts = tree.at(level)
        single = _single_scored(parts, ask) if ask.scored else _single(parts, ask)
        if single is not None:
            return level, [single]
        if ask.required:
            return Shortfall(by_room_led(parts, least_free=ask.least_free, scored=ask.scored)[0].slices, level)
        if ask.unconstrained:
            break
    several = _several(parts, ask)
    return Shortfall(several, level) if isinstance(several, int) else (level, several)


def _single(parts: Sequence[Domain], ask: ResolvedRequest) -> Domain | None:
    """Return the domain with the least room that holds everything; best fit and least free capacity agree on it."""
    slices, leaders = ask.slices, ask.leaders
    enough = [part for part in parts if part.slices_led >= slices and part.leaders >= leaders]
    return min(enough, key=_room_led) if enough else None


def _room_led(part: Domain) -> tuple[int, int]:
    return part.slices_led, part.pods_led


def _single_scored(parts: Sequence[Domain], ask: ResolvedRequest) -> Domain | None:
    """The same if preferred affinity comes first: of the domains with the highest score that hold everything.

    A preferred request considers only those with the highest score, and goes up a level rather than down in score.
    """
    ordered = by_room_led(parts, least_free=ask.least_free, scored=True)
    enough = [part for part in ordered if part.slices_led >= ask.slices and part.leaders >= ask.leaders]
    if not enough or not (ask.required or ask.least_free or enough[0] is ordered[0]):
        return None
    if ask.least_free:
        return enough[0]
    return min((part for part in enough if part.score == enough[0].score), key=_room_led)


def _several(in_order: list[Domain], ask: ResolvedRequest) -> list[Domain] | int:
    """Return domains in order until all is placed; the number that fits if they are too few."""
    chosen: list[Domain] = []
    left = ask.slices
    if ask.leaders:
        parts = by_room_led(in_order, least_free=ask.least_free, scored=ask.scored)
        parts = leader_first(parts, left, ask.leaders, room=slices_of, room_led=slices_led_of)
        if not parts[0].leaders:
            return 0
        host = parts[0]
        if not ask.least_free and host.slices_led >= left:
            able = [part for part in parts if part.leaders]
            host = smallest(able, left, room=slices_led_of, scored=ask.scored)
        chosen.append(host)
        left -= host.slices_led
    others = [part for part in in_order if part is not chosen[0]] if chosen else in_order
    rest = by_room(others, least_free=ask.least_free, scored=ask.scored)
    for index, part in enumerate(rest):
        if left <= 0:
            break
        last = not ask.least_free and part.slices >= left
        taken = smallest(rest[index:], left, room=slices_of, scored=ask.scored) if last else part
        chosen.append(taken)
        left -= taken.slices
    return ask.slices - left if left > 0 else chosen
