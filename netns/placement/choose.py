"""The order in which domains are taken, and the choice of the level and the domains to place in (Kueue's phase 2a).

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
    """Where its pods shall lie in one domain."""
    slice_size: int
    slice_level: int
    inner: Mapping[int, int]
    """Sizes of nested slices, by level."""
    leaders: int
    """1 if a leader goes with the pods, else 0."""
    required: bool
    unconstrained: bool
    least_free: bool
    """Whether domains with little room go first."""
    scored: bool
    """Whether preferred affinity comes before room."""

    @property
    def slices(self) -> int:
        """How many slices the pods make."""
        return self.count // self.slice_size


@dataclass(frozen=True, slots=True)
class Shortfall:
    """There is not enough room: how many slices (or leaders) there is room for at `level`."""

    fit: int
    level: int


def by_room(parts: Sequence[Domain], *, least_free: bool, scored: bool) -> list[Domain]:
    """Sorted for pods alone. `parts` come in the order of their label paths, which stays that of equals.

    The key is one number where it can be, slices above pods: tuples would be as many objects to collect again.
    """
    sign = 1 if least_free else -1
    if scored:
        return sorted(parts, key=lambda part: (-part.score, sign * part.slices, part.pods))
    return sorted(parts, key=lambda part: (sign * part.slices << 48) + part.pods)


def by_room_led(parts: Sequence[Domain], *, least_free: bool, scored: bool) -> list[Domain]:
    """Sorted for pods with a leader: domains that can host it first. Else as `by_room`."""
    sign = 1 if least_free else -1
    if scored:
        return sorted(parts, key=lambda part: (-part.leaders, -part.score, sign * part.slices_led, part.pods_led))
    return sorted(parts, key=lambda part: (-part.leaders << 96) + (sign * part.slices_led << 48) + part.pods_led)


def smallest(parts: Sequence[Domain], needed: int, *, room: Room, scored: bool) -> Domain:
    """The first of those with the least room that is enough; the first of all if none has enough.

    Where affinity comes before room, only domains of the first one's score are looked at.
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
    """Room for slices."""
    return part.slices


def slices_led_of(part: Domain) -> int:
    """Room for slices besides the leader."""
    return part.slices_led


def leader_first(parts: list[Domain], needed: int, leaders: int, *, room: Room, room_led: Room) -> list[Domain]:
    """With a domain in front that can host the leader and leaves enough room for the rest.

    What a leader costs is summed up as the least it costs any child; so, on the way down, the child must be one that
    the room left over can pay for. Unchanged if no leader is asked for, or none will do.
    """
    if leaders == 0:
        return parts
    spare = sum(map(room, parts)) - needed
    for index, part in enumerate(parts):
        if part.leaders >= leaders and room(part) - room_led(part) <= spare:
            return [part, *parts[:index], *parts[index + 1 :]]
    return parts


def choose(tree: Tree, ask: ResolvedRequest) -> tuple[int, list[Domain]] | Shortfall:
    """The level that pods are placed at, and domains of it that hold them; the level has at least one domain.

    One domain of the level asked for; if there is none, a preferred request tries the levels above, and at the top (as
    does an unconstrained one where it starts) takes as few domains as it can.
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
    """The domain with the least room of those that hold everything: best fit and least free capacity agree on it."""
    slices, leaders = ask.slices, ask.leaders
    enough = [part for part in parts if part.slices_led >= slices and part.leaders >= leaders]
    return min(enough, key=_room_led) if enough else None


def _room_led(part: Domain) -> tuple[int, int]:
    return part.slices_led, part.pods_led


def _single_scored(parts: Sequence[Domain], ask: ResolvedRequest) -> Domain | None:
    """The same where preferred affinity comes first: of the domains with the highest score that hold everything.

    A preferred request looks at those of the highest score of all, and rather goes one level up than down in score.
    """
    ordered = by_room_led(parts, least_free=ask.least_free, scored=True)
    enough = [part for part in ordered if part.slices_led >= ask.slices and part.leaders >= ask.leaders]
    if not enough or not (ask.required or ask.least_free or enough[0] is ordered[0]):
        return None
    if ask.least_free:
        return enough[0]
    return min((part for part in enough if part.score == enough[0].score), key=_room_led)


def _several(in_order: list[Domain], ask: ResolvedRequest) -> list[Domain] | int:
    """Domains one after the other until all is placed; the number that fits if they are too few."""
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
