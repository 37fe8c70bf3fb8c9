"""srd.proto.send.message_queue: a FIFO from which any message may be removed, without looking at the others."""

from __future__ import annotations

from collections import deque
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.outgoing.message import OutgoingMessage
from srd.proto.send.message_queue import MessageQueue
from srd.proto.work_request import WorkRequest

MANY = 10_000


def message(number: int) -> OutgoingMessage:
    return OutgoingMessage(WorkRequest(number, 8), number, segment_bytes=8)


@given(steps=st.lists(st.one_of(st.just("add"), st.just("pop"), st.floats(0, 1, exclude_max=True)), max_size=100))
def test_message_queue__is_a_fifo_without_what_was_removed(steps: list[str | float]) -> None:
    ours, theirs = MessageQueue(), deque[OutgoingMessage]()
    for number, step in enumerate(steps):
        if step == "add":
            theirs.append(message(number))
            ours.append(theirs[-1])
        elif theirs and step == "pop":
            theirs[0].left = 0  # as the send queue does
            assert ours.popleft() is theirs.popleft()
        elif theirs and isinstance(step, float):
            removed = theirs[int(step * len(theirs))]
            theirs.remove(removed)
            ours.remove(removed)
        assert list(ours.front(len(ours))) == list(theirs)
        assert bool(ours) == bool(theirs)
        assert not theirs or ours[0] is theirs[0]
        assert len(ours) <= 2 * len(theirs), "what was removed does not pile up"


class Watched:
    """A message that counts how often one is looked at."""

    looks = 0

    def __init__(self) -> None:
        self._left = 1

    @property
    def left(self) -> int:
        Watched.looks += 1
        return self._left

    @left.setter
    def left(self, value: int) -> None:
        self._left = value

    def __eq__(self, other: object) -> bool:
        Watched.looks += 1
        return self is other

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.sources
@pytest.mark.parametrize("step", [1, -1], ids=["the oldest first", "the latest first"])
def test_remove__looks_at_few_others(step: int) -> None:
    """A virtual function may have a million messages open to one peer, and end the last ones of them."""
    queue, messages = MessageQueue(), [Watched() for _ in range(MANY)]
    for message in messages:
        queue.append(cast("OutgoingMessage", message))
    Watched.looks = 0
    for message in messages[1:][::step]:
        queue.remove(cast("OutgoingMessage", message))
    assert list(queue.front(MANY)) == messages[:1]
    assert Watched.looks < 5 * MANY
