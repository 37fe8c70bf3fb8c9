"""netns.placement.part: sums from the bottom up."""

from __future__ import annotations

from netns.placement.part import Part, fill_up, lower


def rack(*pods: int, leaders: tuple[int, ...] = (), cost: int = 1) -> Part:
    part = Part((), "r")
    part.children = [Part(("r",), f"x{index}") for index in range(len(pods))]
    for index, child in enumerate(part.children):
        child.pods = child.pods_led = pods[index]
        if index in leaders:
            child.leaders, child.pods_led = 1, pods[index] - cost
    return part


def filled(part: Part, *, slice_size: int = 1, slice_level: int = 1, inner: int = 1, led: bool = False) -> Part:
    fill_up(part, slice_size=slice_size, slice_level=slice_level, level=0, inner={1: inner}, led=led)
    return part


def test_fill_up__slices_of_the_lowest_level_do_not_span_it() -> None:
    part = filled(rack(3, 3, 1), slice_size=2)
    assert (part.pods, part.slices) == (7, 2)


def test_fill_up__slices_of_this_level_do() -> None:
    part = filled(rack(3, 3, 1), slice_size=2, slice_level=0)
    assert (part.pods, part.slices) == (7, 3)


def test_fill_up__nested_slices_count_whole() -> None:
    assert filled(rack(3, 3, 1), slice_size=4, slice_level=0, inner=2).pods == 4


def test_fill_up__the_leader_costs_what_it_costs_the_cheapest_child() -> None:
    part = filled(rack(5, 5, 5, leaders=(1, 2), cost=2), led=True)
    assert (part.leaders, part.pods, part.pods_led) == (1, 15, 13)


def test_fill_up__without_room_for_the_leader_nothing_is_left_beside_it() -> None:
    part = filled(rack(5, 5), led=True)
    assert (part.leaders, part.pods, part.pods_led, part.slices_led) == (0, 10, 0, 0)


def test_fill_up__a_lone_domain() -> None:
    part = Part((), "x")
    part.pods = part.pods_led = 5
    assert filled(part, slice_size=2, slice_level=0).slices == 2


def test_copy__is_deep_and_lower_is_in_order() -> None:
    part = rack(1, 2)
    twin = part.copy()
    twin.children[0].pods = 9
    assert [child.pods for child in part.children] == [1, 2]
    other = Part((), "a")
    other.children = [Part(("a",), "z")]
    assert [child.values for child in lower([part, other])] == [("a", "z"), ("r", "x0"), ("r", "x1")]


def test_clear__leaves_no_room() -> None:
    part = filled(rack(3, leaders=(0,)), led=True)
    part.clear()
    assert (part.pods, part.pods_led, part.slices, part.slices_led, part.leaders, part.score) == (0,) * 6
