"""srd.completion: entries in order, and tasks that an entry or the close wakes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from srd.completion import CompletionQueue, WorkCompletion
from srd.errors import SrdError
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S

PEER: Any = object()


def entry(first: int) -> WorkCompletion:
    return WorkCompletion(PEER, first, 2, Status.OK)


def test_poll__returns_entries_in_order() -> None:
    queue = CompletionQueue()
    assert queue.poll() == []
    for first in (0, 2, 4):
        queue.push(entry(first))
    assert queue.poll(2) == [entry(0), entry(2)]
    assert queue.poll() == [entry(4)]


async def test_wait__ends_with_the_endpoint_after_the_last_entry() -> None:
    queue = CompletionQueue()
    waiting = asyncio.ensure_future(queue.wait())
    await asyncio.sleep(0)
    queue.close()
    with pytest.raises(SrdError, match="closed"):
        await waiting
    queue.push(entry(0))
    assert await queue.wait() == [entry(0)]


async def test_wait__begins_before_a_cancelled_one_has_ended() -> None:
    queue = CompletionQueue()
    cancelled = asyncio.ensure_future(queue.wait())
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(queue.wait())
    cancelled.cancel()  # the loop begins the other wait before it ends this one
    await asyncio.wait([cancelled])
    queue.push(entry(0))
    assert await asyncio.wait_for(waiting, PATIENCE_S) == [entry(0)]
