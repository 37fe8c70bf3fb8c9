"""netns.placement.domain: sums from the bottom up."""

from __future__ import annotations

from netns.inventory.nodes import Node
from netns.placement.domain import Domain, Fit, Hosts, fill_up, lower


def rack(*pods: int, leaders: tuple[int, ...] = (), cost: int = 1, slice_size: int = 1) -> Domain:
    """A rack of hosts with room for so many pods."""
    part = Domain((), "r")
    part.hosts = Hosts(("r",))
    part.hosts.nodes = {f"x{index}": Node(f"x{index}") for index in range(len(pods))}
    led = [count - cost if index in leaders else count for index, count in enumerate(pods)]
    part.set_fit(
        [
            Fit(count, led[index], count // slice_size, led[index] // slice_size, int(index in leaders), 0)
            for index, count in enumerate(pods)
        ]
    )
    return part


def filled(part: Domain, *, slice_size: int = 1, slice_level: int = 1, inner: int = 1, led: bool = False) -> Domain:
    fill_up(part, slice_size=slice_size, slice_level=slice_level, level=0, inner={1: inner}, led=led)
    return part


def test_fill_up__slices_of_the_lowest_level_do_not_span_it() -> None:
    part = filled(rack(3, 3, 1, slice_size=2), slice_size=2)
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


def test_fill_up__is_the_same_whether_hosts_have_been_looked_at_or_not() -> None:
    plain, looked_at = (rack(5, 3, 3, leaders=(0, 2), slice_size=2) for _ in range(2))
    assert [child.name for child in looked_at.children] == ["x0", "x1", "x2"]
    for part in (plain, looked_at):
        filled(part, slice_size=2, led=True)
    assert numbers(plain) == numbers(looked_at) == (11, 10, 4, 4, 1, 0)


def test_hold__forgets_what_the_request_before_made_of_the_hosts() -> None:
    part = rack(3, 4)
    part.children[0].pods = 1
    part.set_fit([Fit(7, 7, 0, 0, 0, 0), Fit(8, 8, 0, 0, 0, 0)])
    assert [child.pods for child in part.children] == [7, 8]


def test_copy__is_deep_and_lower_is_in_order() -> None:
    part = rack(1, 2)
    for _ in range(2):  # before and after its hosts were looked at
        twin = part.copy()
        twin.children[0].pods = 9
        assert [child.pods for child in part.children] == [1, 2]
    other = Domain((), "a")
    other.adopt(Domain(("a",), "z"))
    assert [child.values for child in lower([part, other])] == [("a", "z"), ("r", "x0"), ("r", "x1")]


def numbers(part: Domain) -> tuple[int, ...]:
    return part.pods, part.pods_led, part.slices, part.slices_led, part.leaders, part.score
