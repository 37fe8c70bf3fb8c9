"""netns.placement.descend: shares of children."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netns.inventory.nodes import HOSTNAME_LABEL
from netns.placement.choose import ResolvedRequest
from netns.placement.descend import NoRoomBelow, descend, give
from netns.placement.domain import Domain, fill_up
from netns.placement.tree import Tree
from tests.netns.placement_cluster import RACK


def resolved(
    count: int, *, size: int = 1, slice_level: int = 1, leaders: int = 0, least_free: bool = False
) -> ResolvedRequest:
    return ResolvedRequest(
        count=count, level=0, slice_size=size, slice_level=slice_level, inner={}, leaders=leaders, required=False,
        unconstrained=least_free, least_free=least_free, scored=False,
    )  # fmt: skip


def host(name: str, pods: int, *, leaders: int = 0, cost: int = 0, above: tuple[str, ...] = ()) -> Domain:
    domain = Domain(above, name)
    domain.pods, domain.pods_led, domain.slices, domain.slices_led, domain.leaders = (
        pods,
        pods - cost,
        pods,
        pods - cost,
        leaders,
    )
    return domain


def shares(domains: list[Domain]) -> list[tuple[str, int, int]]:
    return [(domain.name, domain.pods, domain.leaders) for domain in domains]


def test_give__the_last_is_swapped_for_the_smallest_that_holds_the_rest() -> None:
    domains = [host("a", 5), host("b", 4), host("c", 1)]
    assert shares(give(domains, 6, resolved(6), leaders=0, size=1)) == [("a", 5, 0), ("c", 1, 0)]


def test_give__least_free_takes_them_as_they_come() -> None:
    domains = [host("a", 1), host("b", 4), host("c", 5)]
    assert shares(give(domains, 2, resolved(2, least_free=True), leaders=0, size=1)) == [("a", 1, 0), ("b", 1, 0)]


def test_give__in_whole_slices() -> None:
    domains = [host("a", 5), host("b", 5)]
    for domain in domains:
        domain.slices = domain.slices_led = domain.pods // 2
    assert shares(give(domains, 6, resolved(6, size=2), leaders=0, size=2)) == [("a", 4, 0), ("b", 2, 0)]


def test_give__pod_by_pod_subtracts_the_leader() -> None:
    domains = [host("a", 4, leaders=1, cost=2), host("b", 4)]
    assert shares(give(domains, 5, resolved(5), leaders=1, size=1, whole=False)) == [("a", 2, 1), ("b", 3, 0)]


def test_give__leader_in_a_domain_that_leaves_room() -> None:
    domains = [host("a", 4, leaders=1, cost=4), host("b", 4, leaders=1, cost=1)]
    assert shares(give(domains, 7, resolved(7), leaders=1, size=1)) == [("b", 3, 1), ("a", 4, 0)]


def test_give__more_than_there_is_bad_flow() -> None:
    with pytest.raises(NoRoomBelow) as caught:
        give([host("a", 1)], 3, resolved(3), leaders=0, size=1)
    assert caught.value.pods == 2
    with pytest.raises(NoRoomBelow):
        give([host("a", 3)], 3, resolved(3), leaders=1, size=1)


def tree(*racks: tuple[str, list[int]], slice_size: int = 1, slice_level: int = 1) -> Tree:
    made = Tree((RACK, HOSTNAME_LABEL))
    for name, pods in racks:
        rack = Domain((), name)
        for index, each in enumerate(pods):
            rack.adopt(host(f"{name}{index}", each, above=(name,)))
        for child in rack.children:
            child.slices = child.slices_led = child.pods // slice_size if slice_level == 1 else 0
        fill_up(rack, slice_size=slice_size, slice_level=slice_level, level=0, inner={}, led=False)
        made.root.adopt(rack)
    return made


def test_descend__above_the_slices_children_of_all_compete() -> None:
    made = tree(("a", [3, 1]), ("b", [3, 1]))
    assert shares(descend(made, made.at(0), resolved(6), level=0)) == [("a0", 3, 0), ("b0", 3, 0)]


def test_descend__below_the_slices_shares_stay_with_their_parent() -> None:
    made = tree(("a", [3, 1]), ("b", [3, 1]), slice_size=4, slice_level=0)
    given = descend(made, made.at(0), resolved(8, size=4, slice_level=0), level=0)
    assert sorted(shares(given)) == [("a0", 3, 0), ("a1", 1, 0), ("b0", 3, 0), ("b1", 1, 0)]


def test_give__affinity_comes_before_the_search_for_a_leaders_host() -> None:
    """As in Kueue: b is behind a domain of another score, and out of the question, although only it is as small."""

    def domains() -> list[Domain]:
        made = [host("a", 1), host("p", 4, leaders=1), host("b", 2, leaders=1)]
        for domain, score in zip(made, (9, 5, 5), strict=True):
            domain.score = score
        return made

    wanted = replace(resolved(2, leaders=1), scored=True)
    assert shares(give(domains(), 2, wanted, leaders=1, size=1)) == [("p", 2, 1)]
    assert shares(give(domains()[1:], 2, wanted, leaders=1, size=1)) == [("b", 2, 1)]
