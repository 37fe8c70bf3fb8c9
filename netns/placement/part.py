"""One domain of a topology: what it has room for, and later what was given to it.

A domain does not know the one above it: without cycles, a tree is gone as soon as the call that built it returns, and
the garbage collector has nothing to look for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from netns.nodes import Node

UNBOUNDED: Final = 2**31 - 1
"""Room for pods that ask for nothing: Kueue counts in 32 bits."""

NOTHING: Final[Mapping[str, int]] = {}
_NONE: Final[list[Part]] = []


class Part:
    """One domain."""

    __slots__ = (
        "above", "children", "leaders", "name", "node", "pods", "pods_led", "room", "score", "slices", "slices_led",
        "used",
    )  # fmt: skip

    def __init__(self, above: tuple[str, ...], name: str) -> None:
        self.above = above
        """Label values of the levels above."""
        self.name = name
        """Its own label value."""
        self.children: list[Part] = _NONE
        """In the order of their names; one empty list is shared by the many that have none."""
        self.node: Node | None = None
        """Of a domain of the lowest level that is one node."""
        self.room: Mapping[str, int] = NOTHING
        """Of a domain of the lowest level: what its nodes can give."""
        self.used: dict[str, int] | None = None
        """Of a domain of the lowest level: what is taken of it."""
        self.pods = 0
        """Pods."""
        self.pods_led = 0
        """Pods besides the leader."""
        self.slices = 0
        """Slices; none below their level."""
        self.slices_led = 0
        """Slices besides the leader."""
        self.leaders = 0
        """Leaders: 0 or 1."""
        self.score = 0
        """Weight of the preferred affinity of its nodes."""

    @property
    def values(self) -> tuple[str, ...]:
        """The label path: values of all levels down to its own."""
        return (*self.above, self.name)

    def clear(self) -> None:
        """No room for anything."""
        self.pods = self.pods_led = self.slices = self.slices_led = self.leaders = self.score = 0

    def copy(self) -> Part:
        """A domain with the same numbers, and copies of those below."""
        twin = Part(self.above, self.name)
        twin.pods, twin.pods_led, twin.slices, twin.slices_led = self.pods, self.pods_led, self.slices, self.slices_led
        twin.leaders, twin.score = self.leaders, self.score
        if self.children:
            twin.children = [child.copy() for child in self.children]
        return twin


def path(part: Part) -> tuple[str, ...]:
    """To sort by: the label path."""
    return part.values


def lower(parts: Iterable[Part]) -> list[Part]:
    """The children of all `parts`, in the order of label paths."""
    return [child for part in sorted(parts, key=path) for child in part.children]


def fill_up(part: Part, *, slice_size: int, slice_level: int, level: int, inner: Mapping[int, int], led: bool) -> None:
    """Sum up from the lowest level to `part`, which is at `level`.

    `inner`: sizes of nested slices by level; a domain there counts whole slices only. `led`: a leader is asked for, so
    that only domains with room for it say what it costs: the least that any child would have to give up.
    """
    if not part.children:
        if level == slice_level:
            part.slices, part.slices_led = part.pods // slice_size, part.pods_led // slice_size
        return
    whole = inner.get(level + 1, 1)
    pods = slices = leaders = total = 0
    lost_pods = lost_slices = UNBOUNDED
    hosts_leader = False
    for child in part.children:
        if child.children:
            fill_up(child, slice_size=slice_size, slice_level=slice_level, level=level + 1, inner=inner, led=led)
        elif level + 1 == slice_level:  # not by a call of its own: most domains are of the lowest level
            child.slices, child.slices_led = child.pods // slice_size, child.pods_led // slice_size
        child_pods = child.pods - child.pods % whole
        pods += child_pods
        slices += child.slices
        if not led or child.leaders:
            hosts_leader = True
            lost_pods = min(lost_pods, child_pods - (child.pods_led - child.pods_led % whole))
            lost_slices = min(lost_slices, child.slices - child.slices_led)
        leaders = max(leaders, child.leaders)
        total += child.score
    part.pods, part.leaders, part.score = pods, leaders, total
    part.pods_led = pods - lost_pods if hosts_leader else 0
    part.slices, part.slices_led = slices, slices - lost_slices if hosts_leader else 0
    if level == slice_level:
        part.slices, part.slices_led = part.pods // slice_size, part.pods_led // slice_size
