"""srd.message: frags in place, in order, given back once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devmem.region import Region
from srd.errors import UsageError
from srd.message import Message
from srd.proto.events import Frag, MessageReceived

FRAGS = (Frag(0, 4096, 3), Frag(3, 100, 4), Frag(7, 0, 2))  # in order of the message, anywhere in the region


@pytest.fixture
def region() -> Iterator[Region]:
    with Region(8192) as made:
        for frag, piece in zip(FRAGS, (b"one", b"four", b"12"), strict=True):
            with made.view(frag.region_offset, length=frag.length) as view:
                view[:] = piece
        yield made


@pytest.fixture
def returned() -> list[MessageReceived]:
    return []


@pytest.fixture
def message(region: Region, returned: list[MessageReceived]) -> Message:
    return Message(MessageReceived(1, 2, 9, 77, FRAGS), region=region, give_back=returned.append)


def test_views__are_the_regions_own_memory_in_order(message: Message, region: Region) -> None:
    views = list(message.views())
    assert [bytes(view) for view in views] == [b"one", b"four", b"12"]
    region.array[4096] = ord("O")
    assert bytes(views[0]) == b"One"
    for view in views:
        view.release()


def test_gather__is_one_copy(message: Message, region: Region) -> None:
    whole = message.gather()
    region.array[:] = 0
    assert whole == b"onefour12"
    assert (message.length, message.immediate, message.frags) == (9, 77, FRAGS)


def test_release__gives_back_once(message: Message, returned: list[MessageReceived]) -> None:
    message.release()
    message.release()
    assert [event.message for event in returned] == [2]


def test_with__releases_on_any_way_out(message: Message, returned: list[MessageReceived]) -> None:
    def fail() -> None:
        with message:
            assert returned == []
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(returned) == 1


def test_views__after_release_bad_flow(message: Message) -> None:
    message.release()
    with pytest.raises(UsageError, match="released"):
        list(message.views())
    with pytest.raises(UsageError, match="released"):
        message.gather()


def test_empty_message(region: Region, returned: list[MessageReceived]) -> None:
    with Message(MessageReceived(1, 2, 0, 0, (Frag(0, 64, 0),)), region=region, give_back=returned.append) as message:
        assert message.gather() == b""
    assert len(returned) == 1
