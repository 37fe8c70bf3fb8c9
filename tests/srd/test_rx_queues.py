"""srd.rx_queues over loopback: regions for the payload of chosen peers, and how memory is returned."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from devmem.errors import PoolError, RegionError
from devmem.region import Region
from devmem.tokens import cmsgs, ranges
from srd.endpoint import Endpoint
from srd.errors import PeerError, UsageError
from srd.message import Message
from srd.peer import Peer
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S, until
from tests.srd.loopback import SMALL, content, memory, open_files, pair, send

SEED = 41
MIB = 1 << 20
ROOM = 16 * MIB


@pytest.fixture
def region() -> Iterator[Region]:
    with Region(ROOM, name="test-device") as made:
        yield made


async def exchange(here: Peer, there: Peer, payload: bytes) -> Message:
    """Send a message; return it, not released."""
    sending = asyncio.ensure_future(send(here, payload))
    async with asyncio.timeout(PATIENCE_S):
        message = await there.recv()
        assert await sending is Status.OK
    assert b"".join(message.views()) == payload
    return message


async def begun(there: Peer) -> None:
    await until(lambda: there.landed_bytes, pause_s=0)


def areas(message: Message) -> set[int]:
    return {frag.region_id for frag in message.frags()}


# -- steering -------------------------------------------------------------------------------------------------------


async def test_steer__a_peers_payload_lands_in_the_region(region: Region) -> None:
    payload = content(3 * MIB, seed=SEED)
    async with pair() as (_, two, here, there):
        queue = two.bind_rx(region)
        with await exchange(here, there, payload) as message:
            assert areas(message) == {0}, "no other queue without a rule"
        assert two.linear_bytes == len(payload)
        queue.steer(there)
        with await exchange(here, there, payload) as message:
            assert areas(message) == {queue.id}
            lies = b"".join(bytes(region.view(frag.offset, length=frag.length)) for frag in message.frags())
            assert lies == payload, "in the region itself"
        assert (two.linear_bytes, queue.landed_bytes) == (len(payload), len(payload))
        assert two.bytes_copied == queue.bytes_copied == 0


async def test_steer__each_peer_its_own_queue(region: Region) -> None:
    async with pair() as (one, two, here, there):
        second = await one.connect("127.0.0.1", port=two.address[1])
        other = await two.accept()
        with Region(ROOM) as another:
            queues = [two.bind_rx(region), two.bind_rx(another)]
            queues[0].steer(there)
            queues[1].steer(other)
            for sender, receiver, queue in ((here, there, queues[0]), (second, other, queues[1])):
                with await exchange(sender, receiver, content(2 * MIB, seed=SEED)) as message:
                    assert areas(message) == {queue.id}
            assert two.linear_bytes == 0
            queues[1].unbind()
        with await exchange(second, other, b"to the host again") as message:
            assert areas(message) == {0}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_steer__a_host_and_all(region: Region, host: str) -> None:
    async with pair(host=host) as (_, two, here, there):
        queue = two.bind_rx(region)
        queue.steer(host="192.0.2.1" if host == "127.0.0.1" else "2001:db8::1")
        with await exchange(here, there, b"1") as message:
            assert areas(message) == {0}
        queue.steer(host=host)
        with await exchange(here, there, b"2") as message:
            assert areas(message) == {queue.id}
        queue.unbind()
        with two.bind_rx(region) as everything:
            everything.steer()
            with await exchange(here, there, b"3") as message:
                assert areas(message) == {everything.id}


async def test_steer__in_the_middle_of_a_message(region: Region) -> None:
    """The message has pieces in two regions."""
    payload = content(4 * MIB, seed=SEED)
    async with pair() as (_, two, here, there):
        queue = two.bind_rx(region)
        with memory(payload) as source:
            sending = here.post_send(source, offset=0, length=len(payload))
            await begun(there)
            queue.steer(there)
            async with asyncio.timeout(PATIENCE_S):
                with await there.recv() as message:
                    assert b"".join(message.views()) == payload
                    assert 0 in areas(message)
                assert await sending is Status.OK


async def test_remove_peer__the_rule_of_a_peer_that_has_ended(region: Region) -> None:
    async with pair() as (_, two, here, there):
        queue = two.bind_rx(region)
        queue.steer(there)
        await here.close()
        await there.wait_ended()
        assert two._engine.queues._steering is not None
        assert two._engine.queues._steering._rules == []
        with pytest.raises(PeerError):
            queue.steer(there)


# -- errors ---------------------------------------------------------------------------------------------------------


async def test_bind__invalid_arguments_bad_flow(region: Region) -> None:
    async with pair() as (_, two, _, _):
        before = open_files()
        with Region(4 * MIB) as small, pytest.raises(UsageError, match=f"region: {4 * MIB} bytes are less than"):
            two.bind_rx(small)
        with pytest.raises(UsageError, match="chunk_bytes of 1000"):
            two.bind_rx(region, chunk_bytes=1000)
        with Region.from_fd(region.fd, writable=False) as fixed, pytest.raises(PoolError, match="mapped read-only"):
            two.bind_rx(fixed)
        assert open_files() == before
    region.close()


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"host": "example.org"}, "'example.org' is no address"),
        ({"port": 7}, "port: 7"),
        ({"host": "127.0.0.1", "port": 0}, "port: 0"),
        ({"host": "127.0.0.1", "port": 65536}, "port: 65536"),
    ],
)
async def test_steer__invalid_rules_bad_flow(region: Region, rule: dict[str, Any], reason: str) -> None:
    async with pair() as (_, two, _, _):
        queue = two.bind_rx(region)
        with pytest.raises(UsageError, match=reason):
            queue.steer(**rule)
        queue.unbind()
        with pytest.raises(UsageError, match="is unbound"):
            queue.steer()


# -- unbinding ------------------------------------------------------------------------------------------------------


async def test_unbind__the_region_is_released_with_its_last_piece(region: Region) -> None:
    async with pair() as (_, two, here, there):
        before = open_files()
        queue = two.bind_rx(region)
        queue.steer(there)
        message = await exchange(here, there, content(MIB, seed=SEED))
        queue.unbind()
        queue.unbind()
        assert open_files() == before
        with pytest.raises(RegionError, match="live views"):
            region.close()
        assert message.gather() == content(MIB, seed=SEED)
        with await exchange(here, there, b"to the host") as other:
            assert areas(other) == {0}
        message.release()
        region.close()
        assert two.bytes_copied == MIB, "counts of an unbound queue are kept"


async def test_unbind__with_an_incomplete_message(region: Region) -> None:
    """The rest of it lands in host memory, and it is delivered."""
    payload = content(4 * MIB, seed=SEED)
    async with pair() as (_, two, here, there):
        queue = two.bind_rx(region)
        queue.steer(there)
        with memory(payload) as source:
            sending = here.post_send(source, offset=0, length=len(payload))
            await begun(there)
            queue.unbind()
            async with asyncio.timeout(PATIENCE_S):
                with await there.recv() as message:
                    assert message.gather() == payload
                assert await sending is Status.OK
        region.close()


async def test_close__unbinds(region: Region) -> None:
    gc.collect()  # regions of earlier tests
    before = open_files().count("/memfd")
    async with pair() as (_, two, here, there):
        queue = two.bind_rx(region)
        queue.steer(there)
        message = await exchange(here, there, b"still held")
        token = message.frags()[0].token
    region.close()
    assert region.fd < 0
    assert open_files().count("/memfd") <= before - 1, "those of the endpoints are closed, too"
    assert two.dontneed([(token, 1)]) == 0
    message.release()
    with pytest.raises(UsageError):
        list(message.views())


# -- returning memory -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def steered(region: Region) -> AsyncIterator[tuple[Endpoint, Peer, Peer, Any]]:
    """Give the receiving endpoint, both ends' peers, and the queue that all payload lands in."""
    async with pair() as (_, two, here, there):
        with two.bind_rx(region) as queue:
            queue.steer()
            yield two, here, there, queue


async def test_dontneed__frees_memory_and_credit(region: Region) -> None:
    """Sixteen times the window, each message returned by tokens only."""
    async with steered(region) as (two, here, there, queue):
        free = queue.free_bytes
        for number in range(128):
            message = await exchange(here, there, content(MIB, seed=number))
            frags = message.frags()
            assert two.dontneed(ranges(frag.token for frag in frags)) == len(frags)
            assert two.dontneed(ranges(frag.token for frag in frags)) == 0
        assert free - queue.free_bytes <= 2 * SMALL.chunk_bytes, "except for the chunks that are being filled"
        assert len(two._engine.queues.tokens) == 0


async def test_cmsgs__have_the_offsets_of_the_bytes(region: Region) -> None:
    payload = content(MIB, seed=SEED)
    async with steered(region) as (_, here, there, queue):
        with await exchange(here, there, payload) as message:
            array = cmsgs(message.frags())
            assert int(array["frag_size"].sum()) == len(payload), "as many as recvmsg would have returned"
            assert set(array["dmabuf_id"].tolist()) == {queue.id}
            pieces = [
                region.array[at : at + size].tobytes() for at, size in array[["frag_offset", "frag_size"]].tolist()
            ]
            assert b"".join(pieces) == payload
