"""Two engines over loopback, one with destinations that refuse every third send; every byte is compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from devmem.region import Region
from devmem.registry import Access
from srd.config import EndpointConfig
from srd.proto.events import BatchCompletion, Completion, Extent, MessageReceived, MessagesReceived, WriteReceived
from srd.proto.memory import Destinations
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest
from tests.patience import PATIENCE_S
from tests.srd.loopback import PLAIN, SMALL, content, memory
from tests.srd.test_engine import Owner, connected

RNR, BAD_QPN = Status.REMOTE_ERROR_RNR, Status.REMOTE_ERROR_BAD_DEST_QPN
MIB = 1 << 20
SEED = 37
KEY = 0x1234_5678_9ABC_DEF0
MODES = [pytest.param(SMALL, id="secure"), pytest.param(PLAIN, id="plain")]


class EveryThird(Destinations):
    """Refuses every third message, and messages that arrive together until they are offered singly."""

    def __init__(self, *, takes_together: int = 1) -> None:
        self.taken = self.refused = 0
        self._takes_together = takes_together

    def admit(self, _key: int, *, peer: int, length: int, count: int) -> Status | None:  # noqa: ARG002 - as asked
        if count > self._takes_together:
            return RNR
        self.taken += count
        if count == 1 and (self.taken + self.refused) % 3 == 0:
            self.taken -= 1
            self.refused += 1
            return RNR
        return None

    def admit_write(self, key: int, *, peer: int) -> Status | None:
        return self.admit(key, peer=peer, length=0, count=1)

    def refusal(self, _key: int, *, peer: int) -> Status:
        del peer
        return BAD_QPN

    def flow(self, _key: int) -> int:
        return 0


async def until(owner: Owner, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await owner.next_event()


def statuses(owner: Owner) -> dict[int, Status]:
    """Return how each request has ended."""
    found: dict[int, Status] = {}
    for event in owner.events:
        if isinstance(event, Completion | BatchCompletion):
            count, status = (1, event.status) if isinstance(event, Completion) else (event.count, Status.OK)
            for request in range(event.request, event.request + count):
                assert request not in found
                found[request] = status
    return found


def delivered(owner: Owner) -> dict[int, bytes]:
    """Return every message by its number."""
    found: dict[int, bytes] = {}
    for event in owner.events:
        if isinstance(event, MessageReceived):
            assert event.message not in found
            assert event.key == KEY
            found[event.message] = b"".join(owner.engine.queues.view(extent) for extent in event.extents)
        elif isinstance(event, MessagesReceived):
            whole, size = bytes(owner.engine.queues.view(event.extent)), event.length
            for index in range(event.count):
                assert event.message + index not in found
                assert event.key == KEY
                found[event.message + index] = whole[index * size : (index + 1) * size]
    return found


def release(owner: Owner, peer: int) -> None:
    """Release every message."""
    for event in owner.events:
        if isinstance(event, MessageReceived):
            owner.engine.release(peer, event.extents, event.length, 1)
        elif isinstance(event, MessagesReceived):
            extents: tuple[Extent, ...] = (event.extent,)
            owner.engine.release(peer, extents, event.count * event.length, event.count)


@pytest.mark.parametrize("config", MODES)
@pytest.mark.parametrize("takes_together", [1, 4])
async def test_admit__batches(config: EndpointConfig, takes_together: int) -> None:
    """Bursts of more than `takes_together` messages are refused as a whole, and taken singly but for every third."""
    destinations = EveryThird(takes_together=takes_together)
    one, two = Owner(config=config), Owner(config=config, destinations=destinations)
    payload = content(MIB, seed=SEED)
    count, length, stride = 600, 900, 1009
    try:
        here, there = await connected(one, two)
        with memory(payload) as source:
            places = source.address + np.arange(count, dtype=np.uint64) * stride
            one.engine.post_batch(here, BatchRequest(0, places, length, None, source, KEY))
            await until(one, lambda: len(statuses(one)) == count)
            ended = statuses(one)
            await until(two, lambda: len(delivered(two)) >= destinations.taken)
        assert set(ended.values()) == {Status.OK, RNR}
        assert list(ended.values()).count(RNR) == destinations.refused
        assert delivered(two) == {
            request: payload[request * stride : request * stride + length]
            for request, status in ended.items()
            if status is Status.OK
        }
        release(two, there)
        one.engine.post(here, WorkRequest(9000, 0, key=KEY))
        one.engine.post(here, WorkRequest(9001, 0, key=KEY))
        await until(one, partial(lambda: {9000, 9001} <= statuses(one).keys()))
        assert Status.OK in (statuses(one)[9000], statuses(one)[9001]), "the peer goes on"
    finally:
        one.close()
        two.close()


@pytest.mark.parametrize("config", MODES)
async def test_admit_write__memory_of_what_is_refused_is_untouched(config: EndpointConfig) -> None:
    one, two = Owner(config=config), Owner(config=config, destinations=EveryThird())
    size, count = 100_000, 9
    payload = content(MIB, seed=SEED)
    try:
        here, there = await connected(one, two)
        with memory(payload) as source, Region(MIB) as target:
            rights = Access.REMOTE_WRITE | Access.LOCAL_WRITE
            remote = two.registry.register(target, offset=0, length=MIB, access=rights, peers=frozenset((there,)))
            for request in range(count):
                at, key = request * size, remote.remote_key
                write = WorkRequest(request, size, source.address + 3 * request, Opcode.WRITE, request, key, at)
                one.engine.post(here, write)
            bad = WorkRequest(50, size, source.address, Opcode.WRITE, key=remote.remote_key, offset=MIB - 1)
            one.engine.post(here, bad)
            await until(one, lambda: len(statuses(one)) == count + 1)
            ended = statuses(one)
            assert ended.pop(50) is BAD_QPN
            taken = [request for request, status in ended.items() if status is Status.OK]
            assert len(taken) == 6
            await until(two, lambda: sum(isinstance(event, WriteReceived) for event in two.events) >= 6)
            writes = [event for event in two.events if isinstance(event, WriteReceived)]
            assert sorted(write.immediate for write in writes) == sorted(taken)
            assert {write.key for write in writes} == {remote.remote_key}
            expected = bytearray(MIB)
            for request in taken:
                expected[request * size : (request + 1) * size] = payload[3 * request : 3 * request + size]
            assert target.array.tobytes() == bytes(expected)
            two.registry.deregister(remote)
    finally:
        one.close()
        two.close()
