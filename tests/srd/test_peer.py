"""srd.peer over loopback: messages of every size, credit, early ends, and counters."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from devmem.errors import RegionError
from devmem.region import Region
from devmem.registry import Access
from srd.errors import PeerError, RequestError, UsageError
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S
from tests.srd.loopback import SMALL, content, memory, pair, receive, send

SEED = 22
SEGMENT_BYTES = SMALL.datagram_bytes - 56
SIZES = [0, 1, SEGMENT_BYTES - 1, SEGMENT_BYTES, SEGMENT_BYTES + 1, 3 << 20]


# -- messages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("size_bytes", SIZES)
async def test_send__any_buffer_arrives_whole(size_bytes: int, host: str) -> None:
    payload = content(size_bytes, seed=SEED)
    async with pair(host=host) as (one, _, here, there):
        for data in (payload, bytearray(payload), memoryview(payload), np.frombuffer(payload, np.uint8)):
            await here.send(data, immediate=0xFFFFFFFF)
            with await there.recv() as message:
                assert (message.gather(), message.immediate) == (payload, 0xFFFFFFFF)
        assert here.copied_bytes == one.bytes_copied == 3 * size_bytes  # `bytes` never change


async def test_send__a_part_of_a_region_is_not_copied() -> None:
    payload = content(100_000, seed=SEED)
    async with pair() as (one, _, here, there):
        with memory(payload) as region:
            await here.send(region.view(777, length=50_000))
            assert await receive(there) == payload[777:50_777]
            assert here.copied_bytes == one.bytes_copied == 0


async def test_send__raises_the_status_it_failed_with_bad_flow() -> None:
    async with pair(opener=replace(SMALL, protocol=replace(SMALL.protocol, max_message_bytes=5 << 20))) as ends:
        _, _, here, there = ends
        with pytest.raises(RequestError, match="REMOTE_ERROR_BAD_LENGTH") as caught:
            await here.send(bytes((4 << 20) + 1))
        assert caught.value.status is Status.REMOTE_ERROR_BAD_LENGTH
        await here.send(b"goes on")
        assert await receive(there) == b"goes on"


async def test_send__to_a_peer_that_ends_meanwhile_bad_flow() -> None:
    async with pair() as (_, two, here, _):
        sending = [asyncio.ensure_future(here.send(bytes(4 << 20))) for _ in range(3)]  # the window holds two
        await asyncio.sleep(0)
        await two.close()
        with pytest.raises(RequestError) as caught:
            await asyncio.wait_for(sending[2], PATIENCE_S)
        assert caught.value.status is Status.REMOTE_ERROR_ABORT
        await asyncio.gather(*sending, return_exceptions=True)
        with pytest.raises(PeerError):
            await here.send(b"too late")


@pytest.mark.parametrize("immediate", [-1, 1 << 32, 0.5, "1"])
async def test_send__what_is_no_message_bad_flow(immediate: Any) -> None:
    async with pair() as (_, _, here, there):
        with pytest.raises(UsageError, match="immediate"):
            await here.send(b"x", immediate=immediate)
        with pytest.raises(UsageError, match=r"^length: .* is more than a message may have"):
            await here.send(bytes(SMALL.protocol.max_message_bytes + 1))
        await here.send(b"goes on")
        assert await receive(there) == b"goes on"


async def test_abort__ends_both_ends_at_once() -> None:
    """Well before a peer that says nothing counts as unresponsive."""
    silent = replace(SMALL, protocol=replace(SMALL.protocol, unresponsive_after_s=10 * PATIENCE_S))
    async with pair(config=silent) as (_, _, here, there), asyncio.timeout(PATIENCE_S):
        await there.send(b"nobody receives it")
        waiting = asyncio.ensure_future(there.recv())
        await asyncio.sleep(0)
        here.abort()
        assert here.ended
        with pytest.raises(PeerError):
            await here.send(b"too late")
        with pytest.raises(PeerError, match="closed by the other end"):
            await waiting
        here.abort()  # no effect


async def test_recv__several_waiters_get_a_message_each() -> None:
    async with pair() as (_, _, here, there):
        waiting = [asyncio.ensure_future(receive(there)) for _ in range(3)]
        await asyncio.sleep(0)
        for number in range(3):
            await send(here, bytes([number]))
        assert sorted(await asyncio.gather(*waiting)) == [b"\0", b"\1", b"\2"]


@pytest.mark.parametrize("closes", ["peer", "endpoint"])
async def test_post_send__while_another_task_closes_is_an_error_of_the_peer(closes: str) -> None:
    """Not a UsageError, as another task closes it. The peer still closes in an orderly way."""
    async with pair() as (one, _, here, there):
        with Region(4096) as region:
            closing = asyncio.ensure_future(here.close() if closes == "peer" else one.close())
            await asyncio.sleep(0)
            if closes == "endpoint":
                await asyncio.sleep(0)  # it closes its peers in tasks
            assert not closing.done()
            for post in (
                lambda: here.post_send(region, offset=0, length=1),
                lambda: here.post_write(region, offset=0, length=1, key=1, target_offset=0),
                lambda: here.post_sends(region, offsets=[0], lengths=[1]),
            ):
                with pytest.raises(PeerError, match="being closed") as caught:
                    post()
                assert caught.value.status is Status.FLUSHED
            await closing
            assert await there.wait_ended() is Status.OK


# -- invalid requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, 4097), (4096, 1), (0, -1)])
async def test_post_send__out_of_bounds_bad_flow(offset: int, length: int) -> None:
    async with pair() as (_, _, here, there):
        with Region(4096) as region:
            with pytest.raises((UsageError, RegionError), match="not within a region of 4096"):
                here.post_send(region, offset=offset, length=length)
            await send(here, b"and goes on")
            assert await receive(there) == b"and goes on"


NUMBERS = {
    "post_send": ("offset", "length", "immediate"),
    "post_write": ("offset", "length", "key", "target_offset"),
    "post_read": ("offset", "length", "key", "source_offset"),
}


@pytest.mark.parametrize("value", [0.5, True, "1", None])
@pytest.mark.parametrize(("post", "name"), [(post, name) for post, names in NUMBERS.items() for name in names])
async def test_post__no_integer_bad_flow(post: str, name: str, value: Any) -> None:
    if (name, value) == ("immediate", None):
        return  # there is no such argument
    async with pair() as (one, _, here, _):
        with Region(4096) as region:
            mine = one.register(region, offset=0, length=4096, access=Access.LOCAL_WRITE)
            numbers = dict.fromkeys(NUMBERS[post], 1) | {name: value}
            with pytest.raises(UsageError, match=f"^{name}: {value!r} is no integer"):
                getattr(here, post)(mine if post == "post_read" else region, **numbers)
            one.deregister(mine)


async def test_post_send__numpy_integers_are_integers() -> None:
    async with pair() as (_, _, here, there):
        with memory(b"abc") as region:
            assert await here.post_send(region, offset=np.int64(1), length=np.uint8(1)) is Status.OK
            assert await receive(there) == b"b"


# -- the memory of requests in flight -------------------------------------------------------------------------------


async def test_post_send__its_region_cannot_be_closed_before_it_has_ended() -> None:
    payload = content(4 << 20, seed=SEED)
    async with pair() as (_, _, here, there):
        with memory(payload) as region:
            future = here.post_send(region, offset=0, length=len(payload))
            with pytest.raises(RegionError, match="requests in flight"):
                region.close()
            assert await receive(there) == payload
            assert await future is Status.OK
            region.close()


async def test_post_sends__its_region_cannot_be_closed_before_the_last_has_ended() -> None:
    async with pair() as (one, _, here, _):
        with Region(1 << 16) as region:
            here.post_sends(region, [0, 10, 20], lengths=[5, 6, 6])
            with pytest.raises(RegionError, match="requests in flight"):
                region.close()
            ended = 0
            while ended < 3:
                ended += sum(entry.count for entry in await one.completions.wait())
            region.close()


async def test_cancel__the_region_may_be_closed_at_once() -> None:
    async with pair() as (_, _, here, there):
        with Region(4 << 20) as region:

            async def send_until_cancelled() -> None:
                try:
                    await here.post_send(region, offset=0, length=4 << 20)
                finally:
                    region.close()

            sending = asyncio.ensure_future(send_until_cancelled())
            await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
        await send(here, b"goes on")
        assert await receive(there) == b"goes on"


async def test_peer_ended__the_regions_of_its_requests_may_be_closed() -> None:
    async with pair() as (_, two, here, _):
        with Region(4 << 20) as region, Region(1 << 20) as batch:
            futures = [here.post_send(region, offset=0, length=4 << 20) for _ in range(3)]
            here.post_sends(batch, range(1000), lengths=1000)
            await two.close()
            assert await asyncio.wait_for(futures[2], PATIENCE_S) is Status.REMOTE_ERROR_ABORT
            await here.wait_ended()
            region.close()
            batch.close()


async def test_post__a_refused_request_keeps_no_region() -> None:
    async with pair() as (_, _, here, _):
        with Region(4096) as region:
            with pytest.raises(UsageError) as single:
                here.post_send(region, offset=0, length=1, immediate=-1)
            with pytest.raises(UsageError) as batch:
                here.post_sends(region, [0], lengths=1, immediate=-1)
            await here.close()
            with pytest.raises(PeerError) as ended:
                here.post_send(region, offset=0, length=1)
            region.close()
            assert all(caught.tb for caught in (single, batch, ended)), "with their tracebacks alive"


# -- the end --------------------------------------------------------------------------------------------------------


async def test_close__does_not_wait_for_a_receiver_without_credit() -> None:
    async with pair(opener=replace(SMALL, close_timeout_s=0.05)) as (one, two, here, there):
        with Region(4 << 20) as region:
            futures = [here.post_send(region, offset=0, length=4 << 20) for _ in range(4)]
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(here.close(), here.close())
                assert futures[-1].result() is Status.FLUSHED
                assert await there.wait_ended() is Status.OK
            region.close()
        again = await one.connect("127.0.0.1", port=two.address[1])
        await send(again, b"again")
        assert await receive(await two.accept()) == b"again"


async def test_wait_ended__and_error_give_the_status() -> None:
    async with pair() as (one, _, here, there):
        assert not here.ended
        assert "it is open" in str(here.error())
        one._engine.driver.close()  # sends nothing more, as a killed process
        async with asyncio.timeout(PATIENCE_S):
            assert await there.wait_ended() is Status.LOCAL_ERROR_UNRESP_REMOTE
        assert there.ended
        assert "no packet for" in str(there.error())
        assert there.error().status == 13
        here._inbox.end()  # its driver is closed, so no event ends it


# -- counters -------------------------------------------------------------------------------------------------------


async def test_stats__add_up() -> None:
    async with pair() as (one, two, here, there):
        await here.send(bytearray(100_000))
        await receive(there)
        sent, received = here.stats(), there.stats()
        assert sent.tx_pkts - sent.retrans_pkts == -(-100_000 // SEGMENT_BYTES)
        assert sent.tx_bytes - sent.retrans_bytes >= 100_000 + (sent.tx_pkts - sent.retrans_pkts) * 56
        assert received.rx_pkts - received.rx_duplicates == sent.tx_pkts - sent.retrans_pkts
        assert (received.recv_bytes, sent.copied_bytes, sent.streams) == (100_000, 100_000, 0)
        assert sent.smoothed_rtt_s > 0
        assert sent.cwnd_bytes > 0
        for endpoint, peer in ((one, here), (two, there)):
            assert endpoint.stats().peers == 1
            assert endpoint.stats().tx_pkts == peer.stats().tx_pkts
        assert one.stats().bytes_copied == two.stats().bytes_copied == 100_000
        await here.close()
        await there.wait_ended()
        assert (two.stats().peers, two.stats().recv_bytes) == (0, 100_000), "of peers that have ended, too"
        assert there.stats().recv_bytes == 100_000
