"""netns.placement.choose: order, best fit, least free capacity, levels."""

from __future__ import annotations

import pytest

from netns.inventory.nodes import HOSTNAME_LABEL
from netns.placement.choose import (
    ResolvedRequest,
    Shortfall,
    choose,
    slices_led_of,
    smallest,
)
from netns.placement.domain import Domain
from netns.placement.tree import Tree


def domain(name: str, slices: int, *, pods: int = 0, leaders: int = 0, cost: int = 0, score: int = 0) -> Domain:
    made = Domain((), name)
    made.slices, made.slices_led, made.leaders, made.score = slices, slices - cost, leaders, score
    made.pods = made.pods_led = pods
    return made


def names(domains: list[Domain]) -> str:
    return "".join(each.name for each in domains)


def resolved(
    slices: int, *, required: bool = False, least_free: bool = False, leaders: int = 0, scored: bool = False
) -> ResolvedRequest:
    return ResolvedRequest(
        count=slices, level=0, slice_size=1, slice_level=0, inner={}, leaders=leaders, required=required,
        unconstrained=least_free, least_free=least_free, scored=scored,
    )  # fmt: skip


def chosen(domains: list[Domain], requested: ResolvedRequest) -> str | Shortfall:
    tree = Tree((HOSTNAME_LABEL,))
    for each in domains:
        tree.root.adopt(each)
    found = choose(tree, requested)
    return found if isinstance(found, Shortfall) else names(found[1])


@pytest.mark.parametrize(
    ("requested", "found"),
    [
        (resolved(2), "b"),  # the smallest that is enough
        (resolved(4), "b"),
        (resolved(6), "ca"),  # the largest, then the smallest that holds the rest
        (resolved(8), "cb"),
        (resolved(10), "cba"),
        (resolved(11), Shortfall(10, 0)),
        (resolved(6, required=True), Shortfall(5, 0)),
        (resolved(5, required=True), "c"),
        (resolved(2, least_free=True), "b"),
        (resolved(6, least_free=True), "abc"),
        (resolved(11, least_free=True), Shortfall(10, 0)),
        (resolved(1, leaders=1), Shortfall(0, 0)),
    ],
)
def test_choose(requested: ResolvedRequest, found: str | Shortfall) -> None:
    assert chosen([domain("a", 1), domain("b", 4), domain("c", 5)], requested) == found


def test_choose__with_a_leader() -> None:
    domains = [domain("a", 4, leaders=1, cost=1), domain("b", 6), domain("c", 3, leaders=1, cost=1)]
    assert chosen(domains, resolved(2, leaders=1)) == "c"
    assert chosen(domains, resolved(3, leaders=1)) == "a"
    assert chosen(domains, resolved(7, leaders=1)) == "ab"
    assert chosen(domains, resolved(13, leaders=1)) == Shortfall(12, 0)
    assert chosen(domains, resolved(2, leaders=1, least_free=True)) == "c"
    assert chosen(domains, resolved(4, leaders=1, required=True)) == Shortfall(4, 0)


def test_choose__preferred_affinity() -> None:
    domains = [domain("a", 2, score=5), domain("b", 4), domain("c", 8)]
    assert chosen(domains, resolved(2, scored=True)) == "a"
    assert chosen(domains, resolved(3, scored=True)) == "ab"
    assert chosen(domains, resolved(3, scored=True, required=True)) == "b"
    assert chosen(domains, resolved(9, scored=True, required=True)) == Shortfall(2, 0)
    assert chosen(domains, resolved(3, scored=True, least_free=True)) == "b"


def test_smallest__by_affinity_first_then_by_room_for_the_leader() -> None:
    domains = [domain("a", 8, score=5, leaders=1), domain("b", 3, score=5), domain("c", 4, score=5, leaders=1)]
    others = [domain("d", 8, score=9), domain("e", 2, score=5, leaders=1)]
    assert smallest([*domains, *others], 2, room=slices_led_of, scored=True, leaders=1).name == "c"
    assert smallest([*domains, *others], 2, room=slices_led_of, scored=False, leaders=1).name == "e"
    assert smallest(domains, 2, room=slices_led_of, scored=True).name == "b"
