"""Descend from the chosen domains to the lowest level, on as few domains as possible at each (Kueue's phase 2b).

Down to the level of the slices, the children of all chosen domains compete for the whole request: it does not matter
which of them gets a parent's share, as long as slices stay whole. Below that level, each parent's share goes to its own
children. A domain's share replaces its room.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from netns.placement.choose import ResolvedRequest, Room, by_room, leader_first, slices_led_of, slices_of, smallest
from netns.placement.domain import Domain, lower
from netns.placement.tree import Tree

_pods_of: Final[Room] = attrgetter("pods")
_pods_led_of: Final[Room] = attrgetter("pods_led")


class NoRoomBelow(Exception):  # noqa: N818 - never leaves this package
    """The pods given to a domain do not all fit into its children.

    This happens only with a leader: its cost is summed up from the cheapest child of each domain, level by level.
    """

    def __init__(self, pods: int) -> None:
        super().__init__(pods)
        self.pods = pods


def descend(
    tree: Tree, domains: list[Domain], resolved: ResolvedRequest, *, level: int, spread: bool = False
) -> list[Domain]:
    """Return the domains of the lowest level that get pods; `spread`: keep the shares at `level` (balanced)."""
    given = give(domains, resolved.count, resolved, leaders=resolved.leaders, size=resolved.slice_size)
    lowest = len(tree.levels) - 1
    while level < min(lowest, resolved.slice_level) and not spread:
        below = by_room(lower(given), least_free=resolved.least_free, scored=resolved.scored)
        given = give(below, resolved.count, resolved, leaders=resolved.leaders, size=resolved.slice_size)
        level += 1
    while level < lowest:
        size = resolved.slice_size if level < resolved.slice_level else resolved.inner.get(level + 1, 1)
        given = [child for domain in given for child in _share(domain, resolved, size=size)]
        level += 1
    return given


def give(
    domains: list[Domain], count: int, resolved: ResolvedRequest, *, leaders: int, size: int, whole: bool = True
) -> list[Domain]:
    """Give `count` pods and `leaders` leaders to domains in their order; return the domains used.

    In slices of `size`, or pod by pod if not `whole`. With best fit, the domain that could take the whole rest is
    swapped for the smallest that can. Raises NoRoomBelow if the children have less room than the sum above them.
    """
    room, room_led = (slices_of, slices_led_of) if whole else (_pods_of, _pods_led_of)
    unit = size if whole else 1
    left = count // unit
    domains = leader_first(domains, left, leaders, room=room, room_led=room_led)
    given: list[Domain] = []
    for index, each in enumerate(domains):
        domain, room_here = each, room_led if leaders else room
        if not resolved.least_free and room_here(domain) >= left and domain.leaders >= leaders:
            domain = smallest(domains[index:], left, room=room_here, scored=resolved.scored, leaders=leaders)
        units = min(room_here(domain), left)
        domain.stale = True
        domain.leaders = min(domain.leaders, leaders)
        domain.pods = domain.pods_led = units * unit
        if whole:
            domain.slices = domain.slices_led = units
        given.append(domain)
        left -= units
        leaders -= domain.leaders
        if left == 0 and leaders == 0:
            return given
    raise NoRoomBelow(left * unit)


def _share(domain: Domain, resolved: ResolvedRequest, *, size: int) -> list[Domain]:
    """Distribute the share of `domain` to its children."""
    children = by_room(domain.children, least_free=resolved.least_free, scored=resolved.scored)
    if size > 1:  # nested slices: the numbers so far are those of the outermost ones
        for child in children:
            child.slices, child.slices_led = child.pods // size, child.pods_led // size
            child.stale = True
    return give(children, domain.pods, resolved, leaders=domain.leaders, size=size, whole=size > 1)
