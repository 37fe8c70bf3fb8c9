"""netns.lab.nexthops: each object is made once, before the first route that needs it."""

from __future__ import annotations

from netns.lab.nexthops import Nexthops
from netns.lab.operations import AddNexthop, AddNexthopGroup, Hop

ONE, TWO, THREE = (Hop(f"10.255.0.{number}", f"s{number}") for number in (1, 2, 3))


def test_nexthops__are_made_once_and_shared() -> None:
    nexthops = Nexthops("x-a")
    one, two = AddNexthop("x-a", 1, ONE), AddNexthop("x-a", 2, TWO)
    assert list(nexthops.missing((ONE, TWO))) == [one, two, AddNexthopGroup("x-a", 3, (one, two))]
    assert list(nexthops.missing((ONE, TWO))) == []
    three = AddNexthop("x-a", 4, THREE)
    assert list(nexthops.missing((ONE, THREE))) == [three, AddNexthopGroup("x-a", 5, (one, three))]
    assert (nexthops.group((ONE, TWO)), nexthops.group((ONE, THREE))) == (3, 5)
