"""One domain of a topology: what it has room for, and later what was given to it.

The domains of the lowest level are many, and most are never looked at one by one. So a domain just above them knows its
`Hosts` as plain entries, sums up what fits on them by counting equal ones, and makes their domains when its `children`
are first asked for. A host that gets nothing costs a place in a dict and one in a list, and no object for the garbage
collector to visit.

A domain does not know the one above it: without cycles, a tree is gone as soon as the call that built it returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from netns.inventory.nodes import Node

UNBOUNDED: Final = 2**31 - 1
"""Room for pods that ask for nothing: Kueue counts in 32 bits."""

_NONE: Final[list[Domain]] = []


class Fit(NamedTuple):
    """What a domain of the lowest level has room for; each word as in `Domain`."""

    pods: int
    pods_led: int
    slices: int
    slices_led: int
    leaders: int
    score: int


class Hosts:
    """What lies in a domain just above the lowest level."""

    __slots__ = ("fits", "nodes", "path", "used")

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path
        """Label values of the levels above the lowest; the domains made of hosts share it."""
        self.nodes: dict[str, Node] = {}
        """By the label value of the lowest level."""
        self.used: dict[str, dict[str, int]] = {}
        """What is taken, by the same; only of those of which something is."""
        self.fits: Sequence[Fit] = ()
        """What fits on each, in the order of `nodes`."""


class Domain:
    """One domain."""

    __slots__ = (
        "_children", "above", "hosts", "leaders", "name", "pods", "pods_led", "score", "slices", "slices_led",
    )  # fmt: skip

    def __init__(self, above: tuple[str, ...], name: str) -> None:
        self.above = above
        """Label values of the levels above."""
        self.name = name
        """Its own label value."""
        self.hosts: Hosts | None = None
        """Of a domain just above the lowest level."""
        self._children = _NONE  # one empty list is shared by the many that have none
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

    @property
    def children(self) -> list[Domain]:
        """The domains below it, in the order of their names."""
        if self.hosts is not None and not self._children:
            pairs = sorted(zip(self.hosts.nodes, self.hosts.fits, strict=True))
            self._children = [_made(self.hosts.path, name, fit) for name, fit in pairs]
        return self._children

    def adopt(self, child: Domain) -> None:
        """Take `child` as the last of the domains below."""
        if self._children is _NONE:
            self._children = []
        self._children.append(child)

    def set_fit(self, fits: Sequence[Fit]) -> None:
        """Take what fits on its hosts; what was made of them for a request before is forgotten."""
        assert self.hosts is not None  # noqa: S101 - only such domains are asked to
        self.hosts.fits, self._children = fits, _NONE

    def below(self) -> Iterable[tuple[Domain | Fit, int]]:
        """What the domains below have room for, and how many have just that; hosts stay plain entries."""
        if self.hosts is not None and not self._children:
            return Counter(self.hosts.fits).items()
        return ((child, 1) for child in self._children)

    def copy(self) -> Domain:
        """A domain with the same numbers, and copies of those below."""
        twin = Domain(self.above, self.name)
        twin.pods, twin.pods_led, twin.slices, twin.slices_led = self.pods, self.pods_led, self.slices, self.slices_led
        twin.leaders, twin.score = self.leaders, self.score
        twin.hosts = self.hosts
        for child in self._children:
            twin.adopt(child.copy())
        return twin


def _made(above: tuple[str, ...], name: str, fit: Fit) -> Domain:
    part = Domain(above, name)
    part.pods, part.pods_led, part.slices, part.slices_led, part.leaders, part.score = fit
    return part


def path(part: Domain) -> tuple[str, ...]:
    """To sort by: the label path."""
    return part.values


def lower(parts: Iterable[Domain]) -> list[Domain]:
    """The children of all `parts`, in the order of label paths."""
    return [child for part in sorted(parts, key=path) for child in part.children]


def fill_up(
    part: Domain, *, slice_size: int, slice_level: int, level: int, inner: Mapping[int, int], led: bool
) -> None:
    """Sum up to `part`, which is at `level`, from the lowest level, whose own numbers are known.

    `inner`: sizes of nested slices by level; a domain there counts whole slices only. `led`: a leader is asked for, so
    that only domains with room for it say what it costs: the least that any child would have to give up.
    """
    if part.hosts is None:
        if not part.children:
            return
        for child in part.children:
            fill_up(child, slice_size=slice_size, slice_level=slice_level, level=level + 1, inner=inner, led=led)
    whole = inner.get(level + 1, 1)
    pods = slices = leaders = score = 0
    lost_pods = lost_slices = UNBOUNDED
    hosts_leader = False
    for each, count in part.below():
        whole_pods = each.pods - each.pods % whole
        pods += whole_pods * count
        slices += each.slices * count
        if not led or each.leaders:
            hosts_leader = True
            lost_pods = min(lost_pods, whole_pods - (each.pods_led - each.pods_led % whole))
            lost_slices = min(lost_slices, each.slices - each.slices_led)
        leaders = max(leaders, each.leaders)
        score += each.score * count
    part.pods, part.leaders, part.score = pods, leaders, score
    part.pods_led = pods - lost_pods if hosts_leader else 0
    part.slices, part.slices_led = slices, slices - lost_slices if hosts_leader else 0
    if level == slice_level:
        part.slices, part.slices_led = part.pods // slice_size, part.pods_led // slice_size
