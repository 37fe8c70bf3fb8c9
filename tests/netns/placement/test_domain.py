"""netns.placement.domain: sums from the bottom up."""

from __future__ import annotations

from netns.inventory.nodes import Node
from netns.placement.domain import Domain, Fit, Fits, HostContents, fill_up, lower


def rack(*pods: int, leaders: tuple[int, ...] = (), cost: int = 1, slice_size: int = 1) -> Domain:
    """A rack of hosts with room for so many pods."""
    domain = Domain((), "r")
    domain.hosts = HostContents(("r",))
    domain.hosts.nodes = {f"x{index}": Node(f"x{index}") for index in range(len(pods))}
    led = [count - cost if index in leaders else count for index, count in enumerate(pods)]
    domain.set_fit(
        Fits(
            [
                Fit(count, led[index], count // slice_size, led[index] // slice_size, int(index in leaders), 0)
                for index, count in enumerate(pods)
            ],
            {},
        )
    )
    return domain


def filled(domain: Domain, *, slice_size: int = 1, slice_level: int = 1, inner: int = 1, led: bool = False) -> Domain:
    fill_up(domain, slice_size=slice_size, slice_level=slice_level, level=0, inner={1: inner}, led=led)
    return domain


def test_fill_up__slices_of_the_lowest_level_do_not_span_it() -> None:
    domain = filled(rack(3, 3, 1, slice_size=2), slice_size=2)
    assert (domain.pods, domain.slices) == (7, 2)


def test_fill_up__slices_of_this_level_do() -> None:
    domain = filled(rack(3, 3, 1), slice_size=2, slice_level=0)
    assert (domain.pods, domain.slices) == (7, 3)


def test_fill_up__nested_slices_count_whole() -> None:
    assert filled(rack(3, 3, 1), slice_size=4, slice_level=0, inner=2).pods == 4


def test_fill_up__leader_cost_is_that_of_the_cheapest_child() -> None:
    domain = filled(rack(5, 5, 5, leaders=(1, 2), cost=2), led=True)
    assert (domain.leaders, domain.pods, domain.pods_led) == (1, 15, 13)


def test_fill_up__no_room_for_the_leader() -> None:
    domain = filled(rack(5, 5), led=True)
    assert (domain.leaders, domain.pods, domain.pods_led, domain.slices_led) == (0, 10, 0, 0)


def test_fill_up__same_with_and_without_expanded_hosts() -> None:
    plain, expanded = (rack(5, 3, 3, leaders=(0, 2), slice_size=2) for _ in range(2))
    assert [child.name for child in expanded.children] == ["x0", "x1", "x2"]
    for domain in (plain, expanded):
        filled(domain, slice_size=2, led=True)
    assert numbers(plain) == numbers(expanded) == (11, 10, 4, 4, 1, 0)


def test_set_fit__discards_expanded_hosts() -> None:
    domain = rack(3, 4)
    domain.children[0].pods = 1
    domain.set_fit(Fits([Fit(7, 7, 0, 0, 0, 0), Fit(8, 8, 0, 0, 0, 0)], {}))
    assert [child.pods for child in domain.children] == [7, 8]


def test_copy__is_deep_and_lower_is_in_order() -> None:
    domain = rack(1, 2)
    for _ in range(2):  # before and after its hosts are expanded
        twin = domain.copy()
        twin.children[0].pods = 9
        assert [child.pods for child in domain.children] == [1, 2]
    other = Domain((), "a")
    other.adopt(Domain(("a",), "z"))
    assert [child.values for child in lower([domain, other])] == [("a", "z"), ("r", "x0"), ("r", "x1")]


def numbers(domain: Domain) -> tuple[int, ...]:
    return domain.pods, domain.pods_led, domain.slices, domain.slices_led, domain.leaders, domain.score
