"""One domain of a topology: its room, and later its share.

There are many domains of the lowest level, and most are never used individually. So a domain just above them keeps its
`HostContents`, and what fits on them, as plain entries, sums up by counting equal ones, and creates their domains at
the first use of `children`. A host that gets nothing costs an entry in a dict and one in a list, and no object for the
garbage collector.

A domain has no reference to the one above it: without cycles, a tree is freed when the call that built it returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from netns.inventory.nodes import Node

UNBOUNDED: Final = 2**31 - 1
"""The room for pods without requests: Kueue counts in 32 bits."""

_NONE: Final[list[Domain]] = []


class Fit(NamedTuple):
    """The room of a domain of the lowest level; each field as in `Domain`."""

    pods: int
    pods_led: int
    slices: int
    slices_led: int
    leaders: int
    score: int


class Fits(list[Fit]):
    """What fits on hosts, in their order."""

    __slots__ = ("_equal", "excluded")

    def __init__(self, fits: Iterable[Fit], excluded: Mapping[str, int]) -> None:
        super().__init__(fits)
        self.excluded = excluded
        """How many had no room for a single pod, by the reason."""
        self._equal: Counter[Fit] | None = None

    def equal(self) -> Counter[Fit]:
        """Return how many hosts have each room."""
        if self._equal is None:
            self._equal = Counter(self)
        return self._equal


_UNCOUNTED: Final = Fits((), {})


class HostContents:
    """The contents of a domain just above the lowest level."""

    __slots__ = ("changes", "nodes", "path", "used")

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path
        """Label values of the levels above the lowest; shared by the domains created from the hosts."""
        self.nodes: dict[str, Node] = {}
        """By the label value of the lowest level."""
        self.used: dict[str, dict[str, int]] = {}
        """What is used, by the same key; only for those with usage."""
        self.changes = 0
        """Rises with each change of what is used."""


class Domain:
    """One domain."""

    __slots__ = (
        "_children", "above", "counted", "fits", "hosts", "leaders", "name", "pods", "pods_led", "score", "slices",
        "slices_led", "stale",
    )  # fmt: skip

    def __init__(self, above: tuple[str, ...], name: str) -> None:
        self.above = above
        """Label values of the levels above."""
        self.name = name
        """Its own label value."""
        self.hosts: HostContents | None = None
        """Of a domain just above the lowest level."""
        self.fits = _UNCOUNTED
        """What fits on each of the hosts, in their order."""
        self.counted = -1
        """Their `changes` when that was counted."""
        self.stale = True
        """Its numbers are not the sum of those below: they never were, or are the share that a request got."""
        self._children = _NONE  # one empty list, shared by all domains without children
        self.pods = 0
        """Pods."""
        self.pods_led = 0
        """Pods beside the leader."""
        self.slices = 0
        """Slices; none below their level."""
        self.slices_led = 0
        """Slices beside the leader."""
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
            pairs = sorted(zip(self.hosts.nodes, self.fits, strict=True))
            self._children = [_made(self.hosts.path, name, fit) for name, fit in pairs]
        return self._children

    def adopt(self, child: Domain) -> None:
        """Add `child` as the last of the domains below."""
        if self._children is _NONE:
            self._children = []
        self._children.append(child)

    def set_fit(self, fits: Fits) -> None:
        """Set what fits on its hosts; domains created from them for an earlier request are discarded."""
        assert self.hosts is not None  # noqa: S101 - called for such domains only
        self.fits, self.counted = fits, self.hosts.changes
        self._children, self.stale = _NONE, True

    def fits_still(self) -> bool:
        """Return whether nothing has changed on its hosts since that; discard the domains created from them."""
        assert self.hosts is not None  # noqa: S101 - likewise
        if self._children:
            self._children, self.stale = _NONE, True
        return self.counted == self.hosts.changes

    def below(self) -> Iterable[tuple[Domain | Fit, int]]:
        """Yield the room of the domains below, with the number of equal ones; hosts stay plain entries."""
        if self.hosts is not None and not self._children:
            return self.fits.equal().items()
        return ((child, 1) for child in self._children)

    def copy(self) -> Domain:
        """Return a domain with the same numbers, and copies of those below."""
        twin = Domain(self.above, self.name)
        twin.pods, twin.pods_led, twin.slices, twin.slices_led = self.pods, self.pods_led, self.slices, self.slices_led
        twin.leaders, twin.score = self.leaders, self.score
        twin.hosts, twin.fits, twin.counted = self.hosts, self.fits, self.counted
        for child in self._children:
            twin.adopt(child.copy())
        return twin


def _made(above: tuple[str, ...], name: str, fit: Fit) -> Domain:
    domain = Domain(above, name)
    domain.pods, domain.pods_led, domain.slices, domain.slices_led, domain.leaders, domain.score = fit
    return domain


def path(domain: Domain) -> tuple[str, ...]:
    """The sort key: the label path."""
    return domain.values


def lower(domains: Iterable[Domain]) -> list[Domain]:
    """Return the children of all `domains`, in the order of label paths."""
    return [child for domain in sorted(domains, key=path) for child in domain.children]


def fill_up(
    domain: Domain, *, slice_size: int, slice_level: int, level: int, inner: Mapping[int, int], led: bool
) -> bool:
    """Sum up to `domain`, which is at `level`, from the lowest level, whose numbers are set; return whether it changed.

    What is not stale, nor anything below it, stays: it has been summed up with the same arguments before. `inner`:
    sizes of nested slices by level; a domain there counts whole slices only. `led`: there is a leader, so only domains
    with room for it have its cost: the least that any child would have to give up.
    """
    changed, domain.stale = domain.stale, False
    if domain.hosts is None:
        for child in domain.children:
            if fill_up(child, slice_size=slice_size, slice_level=slice_level, level=level + 1, inner=inner, led=led):
                changed = True
    if not changed or (domain.hosts is None and not domain.children):
        return False
    whole = inner.get(level + 1, 1)
    pods = slices = leaders = score = 0
    lost_pods = lost_slices = UNBOUNDED
    hosts_leader = False
    for each, count in domain.below():
        whole_pods = each.pods - each.pods % whole
        pods += whole_pods * count
        slices += each.slices * count
        if not led or each.leaders:
            hosts_leader = True
            lost_pods = min(lost_pods, whole_pods - (each.pods_led - each.pods_led % whole))
            lost_slices = min(lost_slices, each.slices - each.slices_led)
        leaders = max(leaders, each.leaders)
        score += each.score * count
    domain.pods, domain.leaders, domain.score = pods, leaders, score
    domain.pods_led = pods - lost_pods if hosts_leader else 0
    domain.slices, domain.slices_led = slices, slices - lost_slices if hosts_leader else 0
    if level == slice_level:
        domain.slices, domain.slices_led = domain.pods // slice_size, domain.pods_led // slice_size
    return True
