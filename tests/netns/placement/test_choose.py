"""netns.placement.choose: order, best fit, least free capacity, levels."""

from __future__ import annotations

import pytest

from netns.inventory.nodes import HOSTNAME_LABEL
from netns.placement.choose import (
    ResolvedRequest,
    Shortfall,
    by_room,
    by_room_led,
    choose,
    leader_first,
    slices_led_of,
    slices_of,
    smallest,
)
from netns.placement.domain import Domain
from netns.placement.tree import Tree


def part(name: str, slices: int, *, pods: int = 0, leaders: int = 0, cost: int = 0, score: int = 0) -> Domain:
    made = Domain((), name)
    made.slices, made.slices_led, made.leaders, made.score = slices, slices - cost, leaders, score
    made.pods = made.pods_led = pods
    return made


def names(parts: list[Domain]) -> str:
    return "".join(each.name for each in parts)


def ask(
    slices: int, *, required: bool = False, least_free: bool = False, leaders: int = 0, scored: bool = False
) -> ResolvedRequest:
    return ResolvedRequest(
        count=slices, level=0, slice_size=1, slice_level=0, inner={}, leaders=leaders, required=required,
        unconstrained=least_free, least_free=least_free, scored=scored,
    )  # fmt: skip


def chosen(parts: list[Domain], wish: ResolvedRequest) -> str | Shortfall:
    tree = Tree((HOSTNAME_LABEL,))
    for each in parts:
        tree.root.adopt(each)
    found = choose(tree, wish)
    return found if isinstance(found, Shortfall) else names(found[1])


def test_by_room__most_slices_then_fewest_pods_then_path() -> None:
    parts = [part("a", 1, pods=5), part("b", 2, pods=9), part("c", 2, pods=5), part("d", 1, pods=5)]
    assert names(by_room(parts, least_free=False, scored=False)) == "cbad"
    assert names(by_room(parts, least_free=True, scored=False)) == "adcb"
    parts[3].score = 1
    assert names(by_room(parts, least_free=False, scored=True)) == "dcba"


def test_by_room_led__hosts_of_a_leader_first() -> None:
    parts = [part("a", 9), part("b", 1, leaders=1), part("c", 3, leaders=1, cost=1)]
    assert names(by_room_led(parts, least_free=False, scored=False)) == "cba"
    parts[1].score = 1
    assert names(by_room_led(parts, least_free=False, scored=True)) == "bca"


def test_smallest__first_of_those_with_just_enough() -> None:
    parts = [part("a", 9), part("b", 5), part("c", 3), part("d", 3), part("e", 1)]
    assert smallest(parts, 2, room=slices_of, scored=False).name == "c"
    assert smallest(parts, 10, room=slices_of, scored=False).name == "a"
    assert smallest(parts, 4, room=slices_of, scored=True).name == "b"
    parts[0].score = parts[1].score = 1
    assert smallest(parts, 2, room=slices_of, scored=True).name == "b"


def test_leader_first__the_first_that_leaves_enough_for_the_rest() -> None:
    parts = [part("a", 4), part("b", 4, leaders=1, cost=3), part("c", 4, leaders=1, cost=1)]
    assert names(leader_first(parts, 11, 1, room=slices_of, room_led=slices_led_of)) == "cab"
    assert names(leader_first(parts, 9, 1, room=slices_of, room_led=slices_led_of)) == "bac"
    assert names(leader_first(parts, 12, 1, room=slices_of, room_led=slices_led_of)) == "abc"
    assert names(leader_first(parts, 12, 0, room=slices_of, room_led=slices_led_of)) == "abc"


@pytest.mark.parametrize(
    ("wish", "found"),
    [
        (ask(2), "b"),  # the smallest that is enough
        (ask(4), "b"),
        (ask(6), "ca"),  # the largest, then the smallest that holds the rest
        (ask(8), "cb"),
        (ask(10), "cba"),
        (ask(11), Shortfall(10, 0)),
        (ask(6, required=True), Shortfall(5, 0)),
        (ask(5, required=True), "c"),
        (ask(2, least_free=True), "b"),
        (ask(6, least_free=True), "abc"),
        (ask(11, least_free=True), Shortfall(10, 0)),
        (ask(1, leaders=1), Shortfall(0, 0)),
    ],
)
def test_choose(wish: ResolvedRequest, found: str | Shortfall) -> None:
    assert chosen([part("a", 1), part("b", 4), part("c", 5)], wish) == found


def test_choose__with_a_leader() -> None:
    parts = [part("a", 4, leaders=1, cost=1), part("b", 6), part("c", 3, leaders=1, cost=1)]
    assert chosen(parts, ask(2, leaders=1)) == "c"
    assert chosen(parts, ask(3, leaders=1)) == "a"
    assert chosen(parts, ask(7, leaders=1)) == "ab"
    assert chosen(parts, ask(13, leaders=1)) == Shortfall(12, 0)
    assert chosen(parts, ask(2, leaders=1, least_free=True)) == "c"
    assert chosen(parts, ask(4, leaders=1, required=True)) == Shortfall(4, 0)


def test_choose__preferred_affinity() -> None:
    parts = [part("a", 2, score=5), part("b", 4), part("c", 8)]
    assert chosen(parts, ask(2, scored=True)) == "a"
    assert chosen(parts, ask(3, scored=True)) == "ab"
    assert chosen(parts, ask(3, scored=True, required=True)) == "b"
    assert chosen(parts, ask(9, scored=True, required=True)) == Shortfall(2, 0)
    assert chosen(parts, ask(3, scored=True, least_free=True)) == "b"
