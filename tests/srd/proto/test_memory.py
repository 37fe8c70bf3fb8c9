"""The registrations of the tests implement `Memory`, and their inbox `Inbox`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from srd.proto.memory import Inbox, Memory
from srd.proto.wire.status import Status
from tests.simulation import Keys
from tests.srd.proto.recording_inbox import RNR, RecordingInbox


@pytest.mark.parametrize(
    ("offset", "length", "place"), [(0, 100, 50), (100, 0, 150), (99, 1, 149), (99, 2, None), (-1, 1, None)]
)
@pytest.mark.parametrize(
    ("rights", "answers"), [("l", (1, 0, 0)), ("r", (0, 1, 0)), ("w", (0, 0, 1)), ("lrw", (1, 1, 1))]
)
def test_memory__right_and_range(
    offset: int, length: int, place: int | None, rights: str, answers: tuple[int, int, int]
) -> None:
    keys = Keys()
    keys.ranges[7] = (50, 100, rights)
    memory: Memory = keys
    asked: tuple[Callable[..., int | None], ...] = (
        memory.local_writable,
        partial(memory.remote_readable, peer=1),
        partial(memory.remote_writable, peer=1),
    )
    for ask, allowed in zip(asked, answers, strict=True):
        assert ask(7, offset=offset, length=length) == (place if allowed else None)
        assert ask(8, offset=offset, length=length) is None


def test_inbox__takes_all_of_them_or_none() -> None:
    recording = RecordingInbox(lambda _key, count: RNR if count > 2 else None)
    inbox: Inbox = recording
    assert inbox.admit(7, peer=1, length=10, count=3) is RNR
    assert inbox.admit(7, peer=1, length=10, count=2) is None
    assert inbox.admit_write(8, peer=1) is None
    assert inbox.refusal(9, peer=0) is Status.REMOTE_ERROR_BAD_ADDRESS
    assert inbox.flow(9) == 0
    assert recording.taken == {7: 2, 8: 1}
    assert recording.refused == {7: 3}
