"""Descend from the chosen domains to the lowest level, on as few domains as possible at each (Kueue's phase 2b).

Down to the level of the slices, the children of all chosen domains compete for the whole request: it does not matter
which of them gets a parent's share, as long as slices stay whole. Below that level, each parent's share goes to its own
children. A domain's share replaces its room.
"""

from __future__ import annotations

from netns.placement.choose import ResolvedRequest, by_room, leader_first, slices_led_of, slices_of, smallest
from netns.placement.domain import Domain, lower
from netns.placement.tree import Tree


class NoRoomBelow(Exception):  # noqa: N818 - never leaves this package
    """The pods given to a domain do not all fit into its children.

    This happens only with a leader: its cost is summed up from the cheapest child of each domain, level by level.
    """

    def __init__(self, pods: int) -> None:
        super().__init__(pods)
        self.pods = pods


def descend(tree: Tree, parts: list[Domain], ask: ResolvedRequest, *, level: int, spread: bool = False) -> list[Domain]:
    """Return the domains of the lowest level that get pods; `spread`: keep the shares at `level` (balanced)."""
    given = give(parts, ask.count, ask, leaders=ask.leaders, size=ask.slice_size)
    lowest = len(tree.levels) - 1
    while level < min(lowest, ask.slice_level) and not spread:
        below = by_room(lower(given), least_free=ask.least_free, scored=ask.scored)
        given = give(below, ask.count, ask, leaders=ask.leaders, size=ask.slice_size)
        level += 1
    while level < lowest:
        size = ask.slice_size if level < ask.slice_level else ask.inner.get(level + 1, 1)
        given = [child for part in given for child in _share(part, ask, size=size)]
        level += 1
    return given


def give(
    parts: list[Domain], count: int, ask: ResolvedRequest, *, leaders: int, size: int, whole: bool = True
) -> list[Domain]:
    """Give `count` pods and `leaders` leaders to domains in their order; return the domains used.

    In slices of `size`, or pod by pod if not `whole`. With best fit, the domain that could take the whole rest is
    swapped for the smallest that can. Raises NoRoomBelow if the sums above were too optimistic.
    """
    room, room_led = (slices_of, slices_led_of) if whole else (pods_of, pods_led_of)
    unit = size if whole else 1
    left = count // unit
    parts = leader_first(parts, left, leaders, room=room, room_led=room_led)
    given: list[Domain] = []
    for index, each in enumerate(parts):
        part, room_here = each, room_led if leaders else room
        if not ask.least_free and room_here(part) >= left and part.leaders >= leaders:
            able = [other for other in parts[index:] if other.leaders >= leaders] if leaders else parts[index:]
            part = smallest(able, left, room=room_here, scored=ask.scored)
        units = min(room_here(part), left)
        part.leaders = min(part.leaders, leaders)
        part.pods = part.pods_led = units * unit
        if whole:
            part.slices = part.slices_led = units
        given.append(part)
        left -= units
        leaders -= part.leaders
        if left == 0 and leaders == 0:
            return given
    raise NoRoomBelow(left * unit)


def _share(part: Domain, ask: ResolvedRequest, *, size: int) -> list[Domain]:
    """Give the share of `part` to its children."""
    children = by_room(part.children, least_free=ask.least_free, scored=ask.scored)
    if size > 1:  # nested slices: the numbers so far are those of the outermost ones
        for child in children:
            child.slices, child.slices_led = child.pods // size, child.pods_led // size
    return give(children, part.pods, ask, leaders=part.leaders, size=size, whole=size > 1)


def pods_of(part: Domain) -> int:
    """Return the room for pods."""
    return part.pods


def pods_led_of(part: Domain) -> int:
    """Return the room for pods beside the leader."""
    return part.pods_led
