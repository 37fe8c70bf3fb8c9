"""srd.message: pieces in place, in order, released once, by any of the ways."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from devmem.errors import PoolError
from devmem.region import Region
from srd.errors import UsageError
from srd.message import Message
from srd.proto import events
from srd.proto.events import MessageReceived
from srd.rx_queues import RxQueueTable
from tests.srd.loopback import SMALL

# In order of the message, anywhere in the region.
EXTENTS = (events.Extent(0, 4096, 3), events.Extent(3, 100, 4), events.Extent(7, 0, 2))


class Owner:
    """The queues of an endpoint with one message in them, and what was released."""

    def __init__(self, region: Region) -> None:
        self.region = region
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first:
            self.queues = RxQueueTable(SMALL, region, first=first, contexts=(), protections=None)
        for piece, content in zip(EXTENTS, (b"one", b"four", b"12"), strict=True):
            region.array[piece.region_offset : piece.region_offset + piece.length] = np.frombuffer(content, np.uint8)
        self.queues.host.hold(EXTENTS)
        self.returned: list[tuple[int, list[int], int, int]] = []

    def release(self, peer: int, extents: Sequence[events.Extent], size_bytes: int, messages: int) -> None:
        self.returned.append((peer, [extent.offset for extent in extents], size_bytes, messages))
        self.queues.drop(extents)

    def message(self) -> Message:
        return Message(MessageReceived(1, 2, 9, 77, EXTENTS), queues=self.queues, release=self.release)

    @property
    def holds(self) -> int:
        return sum(self.queues.host.pool._holds)


@pytest.fixture
def owner() -> Iterator[Owner]:
    with Region(SMALL.receive_region_bytes) as region:
        made = Owner(region)
        yield made
        made.queues.close()


def test_views__are_the_regions_own_memory_in_order(owner: Owner) -> None:
    message = owner.message()
    views = list(message.views())
    assert [bytes(view) for view in views] == [b"one", b"four", b"12"]
    owner.region.array[4096] = ord("O")
    assert bytes(views[0]) == b"One"
    assert owner.queues.bytes_copied == 0


def test_views__may_outlive_the_message(owner: Owner) -> None:
    message = owner.message()
    array = np.frombuffer(next(message.views()), np.uint8)[1:]
    message.release()
    assert owner.returned == [(1, [0, 3, 7], 9, 1)]
    assert owner.holds == 1, "viewed memory is not reused"
    assert bytes(array) == b"ne"
    del array
    assert owner.queues.host.pool.free_chunks > 0
    assert owner.holds == 0


def test_gather__is_one_copy_and_counted(owner: Owner) -> None:
    message = owner.message()
    whole = message.gather()
    owner.region.array[:] = 0
    assert whole == b"onefour12"
    assert (message.length, message.immediate) == (9, 77)
    assert owner.queues.bytes_copied == 9


@pytest.mark.parametrize("kind", ["bytearray", "floats", "region"])
def test_gather__into(owner: Owner, kind: str) -> None:
    with Region(4096) as target:
        into: Any = {"bytearray": bytearray(12), "floats": np.zeros(3, np.float32), "region": target}[kind]
        filled = owner.message().gather(into)
        assert bytes(filled) == b"onefour12"
        assert bytes(memoryview(into).cast("B")[:12]) == b"onefour12" + bytes(3)
        assert owner.queues.bytes_copied == 9
        filled.release()


@pytest.mark.parametrize(("into", "reason"), [(bytearray(8), "has 8 bytes"), (bytes(9), "is read-only")])
def test_gather__into_an_unsuitable_buffer_bad_flow(owner: Owner, into: object, reason: str) -> None:
    with pytest.raises(UsageError, match=f"into: {reason}; the message of 9 bytes"):
        owner.message().gather(into)
    assert owner.queues.bytes_copied == 0


# -- release --------------------------------------------------------------------------------------------------------


def test_release__is_idempotent(owner: Owner) -> None:
    message = owner.message()
    message.release()
    message.release()
    assert owner.returned == [(1, [0, 3, 7], 9, 1)]
    assert owner.holds == 0


def test_frags__are_where_the_payload_landed(owner: Owner) -> None:
    message = owner.message()
    frags = message.frags()
    assert [(frag.offset, frag.length, frag.region_id) for frag in frags] == [(4096, 3, 0), (100, 4, 0), (0, 2, 0)]
    assert [frag.token - frags[0].token for frag in frags] == [0, 1, 2]
    assert message.frags() == frags, "and do not change"
    assert owner.queues.bytes_copied == 0


def test_frags__returned_one_by_one(owner: Owner) -> None:
    message = owner.message()
    tokens = [frag.token for frag in message.frags()]
    assert owner.queues.tokens.dontneed([(tokens[1], 1)]) == 1
    assert owner.returned == [(1, [3], 4, 0)]
    assert owner.queues.tokens.dontneed([(tokens[0], 3)]) == 2
    message.release()
    assert owner.returned == [(1, [3], 4, 0), (1, [0], 3, 0), (1, [7], 2, 1)]
    assert owner.holds == 0
    assert owner.queues.tokens.dontneed([(tokens[2], 1)]) == 0, "it was returned before"


def test_release__returns_the_remaining_frags(owner: Owner) -> None:
    message = owner.message()
    assert owner.queues.tokens.dontneed([(message.frags()[0].token, 1)]) == 1
    message.release()
    message.release()
    assert [(offsets, messages) for _, offsets, _, messages in owner.returned] == [([0], 0), ([3], 0), ([7], 1)]
    assert len(owner.queues.tokens) == owner.holds == 0


def test_with__releases_on_any_exit(owner: Owner) -> None:
    def fail() -> None:
        with owner.message():
            assert owner.returned == []
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(owner.returned) == 1


def test_views__after_release_bad_flow(owner: Owner) -> None:
    message = owner.message()
    message.release()
    for use in (lambda: list(message.views()), message.gather, message.frags):
        with pytest.raises(UsageError, match="released"):
            use()
    assert owner.queues.bytes_copied == 0


def test_views__of_a_piece_that_was_returned_bad_flow(owner: Owner) -> None:
    message = owner.message()
    owner.queues.tokens.dontneed([(message.frags()[0].token, 3)])
    with pytest.raises(PoolError, match="not held"):
        list(message.views())


def test_empty_message(owner: Owner) -> None:
    empty = MessageReceived(1, 2, 0, 0, ())
    with Message(empty, queues=owner.queues, release=owner.release) as message:
        assert message.gather() == b""
        assert message.frags() == ()
    assert owner.returned == [(1, [], 0, 1)]
