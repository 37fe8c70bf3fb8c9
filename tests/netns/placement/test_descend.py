"""netns.placement.descend: shares of children. Kueue's cases (test_assign.py) and test_groups.py have the rules."""

from __future__ import annotations

import pytest

from netns.placement.descend import NoRoomBelow, give
from netns.placement.domain import Domain
from tests.netns.placement.test_choose import domain, resolved


def test_give__affinity_comes_before_the_search_for_a_leaders_host() -> None:
    """As in Kueue: b is behind a domain of another score, and out of the question, although only it is as small."""

    def domains() -> list[Domain]:
        rooms = (("a", 1, 0, 9), ("p", 4, 1, 5), ("b", 2, 1, 5))
        return [domain(name, pods, pods=pods, leaders=leaders, score=score) for name, pods, leaders, score in rooms]

    def shares(given: list[Domain]) -> list[tuple[str, int, int]]:
        return [(each.name, each.pods, each.leaders) for each in given]

    wanted = resolved(2, leaders=1, scored=True)
    assert shares(give(domains(), 2, wanted, leaders=1, size=1)) == [("p", 2, 1)]
    assert shares(give(domains()[1:], 2, wanted, leaders=1, size=1)) == [("b", 2, 1)]


def test_give__more_than_there_is_bad_flow() -> None:
    with pytest.raises(NoRoomBelow):
        give([domain("a", 3, pods=3)], 3, resolved(3), leaders=1, size=1)
