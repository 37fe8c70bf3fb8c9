"""srd.torch.transfers: what arrives in any order is taken in that of the sender."""

from __future__ import annotations

from itertools import permutations
from typing import Any, cast

import pytest

from srd import Peer
from tests.srd.torch.ranks import Envelope, GroupError, RankLink, header


class Silent:
    """A peer of which nothing comes."""

    def attach(self, handler: object, *, on_write: object) -> None:
        self.handler = handler, on_write


class Owner:
    """Notes what the link tells."""

    def __init__(self) -> None:
        self.tags: list[int] = []

    def on_envelope(self, envelope: Envelope) -> None:
        self.tags.append(envelope.tag)

    def target(self, block: object) -> bytes:
        raise AssertionError(block)

    def on_lost(self, link: object, error: Exception, *, is_fatal: bool) -> None:
        raise AssertionError(link, error, is_fatal)

    def on_farewell(self, reason: str) -> None:
        raise AssertionError(reason)


def link_of(owner: Any) -> RankLink:
    return RankLink(cast("Peer", Silent()), rank=1, host="192.0.2.1", owner=owner)


@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_envelopes__are_taken_by_number(order: tuple[int, ...]) -> None:
    owner = Owner()
    link = link_of(owner)
    for number in order:
        link._take_envelope(header(number, tag=10 + number, length=3) + b"abc")
    assert owner.tags == [10, 11, 12, 13]


@pytest.mark.parametrize(("length", "content"), [(3, b"ab"), (3, b"abcd"), (1 << 20, b"a")])
def test_envelopes__whose_length_is_not_that_of_what_came(length: int, content: bytes) -> None:
    with pytest.raises(GroupError, match=f"rank 1 at 192.0.2.1 announced {length} bytes"):
        link_of(Owner())._take_envelope(header(0, tag=0, length=length) + content)
