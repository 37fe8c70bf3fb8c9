"""srd.torch.transfers: what arrives in any order is taken in that of the sender; what no rank sends ends the group."""

from __future__ import annotations

from itertools import permutations
from typing import Any, cast

import pytest

from srd import Peer
from tests.srd.torch.ranks import (
    FAREWELL,
    MAX_ANNOUNCED,
    MAX_GRANTS,
    MAX_REASON_BYTES,
    NUMBERS,
    PIECE_BYTES,
    Envelope,
    GroupError,
    In,
    RankLink,
    grant,
    header,
    memory,
)


class Silent:
    """A peer of which nothing comes."""

    def attach(self, handler: object, *, on_write: object) -> None:
        self.handler = handler, on_write

    def post(self, address: int, *, length: int, immediate: int) -> int:
        del address, length
        return immediate


class Owner:
    """Notes what the link tells."""

    def __init__(self) -> None:
        self.tags: list[int] = []
        self.envelopes: list[Envelope] = []
        self.reasons: list[str] = []

    def on_envelope(self, envelope: Envelope) -> None:
        self.tags.append(envelope.tag)
        self.envelopes.append(envelope)

    def target(self, block: object) -> bytes:
        del block
        return b""

    def on_lost(self, link: object, error: Exception, *, is_fatal: bool) -> None:
        raise AssertionError(link, error, is_fatal)

    def on_farewell(self, reason: str) -> None:
        self.reasons.append(reason)


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


def waiting_for(link: RankLink, *, length: int, done: list[object]) -> In:
    """Wait for a transfer."""
    transfer = In(memory.scratch(length), identity=1 << 16, done=done.append)
    link.begin_in(transfer)
    return transfer


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("pieces", [[(200, 0)], [(0, PIECE_BYTES), (0, PIECE_BYTES)], [(2, 1), (200, 0)]])
def test_pieces__that_there_are_not_or_that_have_come(pieces: list[tuple[int, int]], *, is_written: bool) -> None:
    """A transfer is done when all of it is here: a piece of no bytes, or one that came twice, stands for no other."""
    done: list[object] = []
    link = link_of(Owner())
    transfer = waiting_for(link, length=2 * PIECE_BYTES + 1, done=done)

    def take(piece: int, length: int) -> None:
        if is_written:
            link._take_write_untrusted(length, transfer.identity | piece)
        else:
            link._land(transfer, piece, memory.Early(bytes(length)))

    for piece, length in pieces[:-1]:
        take(piece, length)
    piece, length = pieces[-1]
    with pytest.raises(GroupError, match=f"rank 1 at 192.0.2.1 sent {length} bytes where this rank waits for"):
        take(piece, length)
    assert not done


def test_pieces__in_any_order() -> None:
    done: list[object] = []
    link = link_of(Owner())
    transfer = waiting_for(link, length=2 * PIECE_BYTES + 1, done=done)
    link._land(transfer, 2, memory.Early(b"c"))
    link._take_write_untrusted(PIECE_BYTES, transfer.identity)
    link._land(transfer, 1, memory.Early(bytes(PIECE_BYTES)))
    assert done == [None]


def test_grants__of_what_never_begins_are_bounded() -> None:
    link = link_of(Owner())
    link._take_grants(b"".join(grant(number << 8) for number in range(MAX_GRANTS)))
    with pytest.raises(GroupError, match="grants transfers that this rank does not begin"):
        link._take_grants(grant(MAX_GRANTS << 8))


def test_grants__of_a_place_beyond_64_bits() -> None:
    with pytest.raises(GroupError, match="grants a write to offset 18446744073709551615, where no memory is"):
        link_of(Owner())._take_grants(grant(0, key=1, offset=(1 << 64) - 1))


def test_envelopes__that_nobody_receives_are_bounded() -> None:
    owner = Owner()
    link = link_of(owner)
    for number in range(MAX_ANNOUNCED):
        link._take_envelope(header(number, tag=0, length=1 << 20, follows=False))
    more = header(MAX_ANNOUNCED, tag=0, length=1 << 20, follows=False)
    with pytest.raises(GroupError, match=f"{MAX_ANNOUNCED} sends that nobody has received"):
        link._take_envelope(more)
    link.receive(owner.envelopes[0], memory.scratch(1 << 20), done=lambda _: None)
    link._take_envelope(more)


@pytest.mark.parametrize("number", [0, 2, MAX_ANNOUNCED + 1, NUMBERS - 1, NUMBERS + 1])
def test_envelopes__with_a_number_that_was_there_or_is_far_ahead(number: int) -> None:
    link = link_of(Owner())
    for first in (0, 2):  # one that was delivered, one that waits
        link._take_envelope(header(first, tag=0, length=3) + b"abc")
    with pytest.raises(GroupError, match="or numbers them wrongly"):
        link._take_envelope(header(number, tag=0, length=3) + b"abc")


def test_a_farewell__is_one_line_of_some_length() -> None:
    owner = Owner()
    link_of(owner)._take_untrusted(cast("Any", Said(b"\x1b[2J\n" + bytes(1 << 20), FAREWELL)))
    [reason] = owner.reasons
    assert reason.startswith(r"\x1b[2J\n")
    assert len(reason) <= 4 * MAX_REASON_BYTES


class Said:
    """A message."""

    def __init__(self, content: bytes, immediate: int) -> None:
        self.content, self.immediate = content, immediate

    def gather(self) -> bytes:
        return self.content
