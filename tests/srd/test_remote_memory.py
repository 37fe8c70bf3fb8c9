"""Registered memory over loopback: write, write with immediate, read, refusals, cancelling, deregistering."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from devmem.errors import RegionError, RegistrationError
from devmem.region import Region
from devmem.registry import Access
from srd.errors import PeerError, UsageError
from srd.message import WriteNotification
from srd.proto.config import MAX_MESSAGE_BYTES
from srd.proto.events import ReceiveResult
from srd.proto.wire.control import MIN_PEER_WINDOW_PACKETS
from srd.proto.wire.data import GroDatagram
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S, until
from tests.srd.loopback import PLAIN, SMALL, content, endpoints, memory, pair, receive, send

SEED = 31
MIB = 1 << 20
ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
SIZES = [0, 1, 8916, 8917, 3 * MIB, 24 * MIB]


def bytes_of(region: Region, offset: int, length: int) -> bytes:
    with region.view(offset, length=length) as view:
        return bytes(view)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("size", SIZES)
async def test_write__lands_at_its_target(host: str, size: int) -> None:
    """Up to three times the receive window: writes do not use it."""
    payload = content(size, seed=SEED)
    with Region(size + 8192) as target, memory(payload) as source:
        async with pair(host=host) as (_, two, here, there):
            registration = two.register(target, offset=1000, length=size + 100, access=ALL, peers=[there])
            writing = here.post_write(
                source, offset=0, length=size, key=registration.remote_key, target_offset=77, immediate=0xFFFFFFFF
            )
            async with asyncio.timeout(PATIENCE_S):
                assert await there.recv_write() == WriteNotification(size, 0xFFFFFFFF)
                assert bytes_of(target, 1077, size) == payload, "the bytes are there before the notification"
                assert await writing is Status.OK
            assert not any(bytes_of(target, 0, 1077))
            assert not any(bytes_of(target, 1077 + size, 8192 - 1077))
            assert two.bytes_copied >= size
            two.deregister(registration)


@pytest.mark.parametrize("size", SIZES)
async def test_read__fetches_the_bytes(size: int) -> None:
    payload = content(size, seed=SEED)
    with Region(size + 8192) as target, memory(payload + bytes(100)) as source:
        async with pair() as (one, two, here, there):
            remote = two.register(source, offset=0, length=size + 100, access=Access.REMOTE_READ, peers=[there])
            local = one.register(target, offset=500, length=size + 100, access=Access.LOCAL_WRITE)
            async with asyncio.timeout(PATIENCE_S):
                status = await here.post_read(local, offset=33, length=size, key=remote.remote_key, source_offset=0)
            assert status is Status.OK
            assert bytes_of(target, 533, size) == payload
            assert not any(bytes_of(target, 0, 533))
            assert not any(bytes_of(target, 533 + size, 8192 - 533))


# -- losses -------------------------------------------------------------------------------------------------------


@pytest.mark.sources
@pytest.mark.parametrize(("lost", "seed"), [(0.0, 1), (0.02, 2), (0.1, 3), (0.1, 4), (0.3, 5)])
async def test_writes__of_which_parts_are_lost_land_in_place_and_nowhere_else(lost: float, seed: int) -> None:
    """Writes and sends at once to the peer's own queue, with arrivals lost at random."""
    size, rng = 8 * MIB, random.Random(seed)
    payload = content(size, seed=SEED)
    with Region(2 * size + 8192) as target, memory(payload) as source, Region(16 * MIB) as device:
        target.array[:] = 0xEE
        async with pair(config=PLAIN) as (_, two, here, there):
            remote = two.register(target, offset=1000, length=2 * size + 100, access=ALL, peers=[there])
            queue = two.bind_rx(device)
            queue.steer(there)
            handle = two._engine.core.handle_packets

            def losing(arrivals: list[GroDatagram], **options: Any) -> ReceiveResult:
                return handle([arrival for arrival in arrivals if rng.random() >= lost], **options)

            two._engine.core.handle_packets = losing  # type: ignore[method-assign,assignment]
            writing = [
                here.post_write(source, offset=0, length=size, key=remote.remote_key, target_offset=start)
                for start in (7, size + 50)
            ]
            sending = [here.post_send(source, offset=0, length=MIB) for _ in range(4)]
            async with asyncio.timeout(2 * PATIENCE_S):
                for _ in sending:
                    with await there.recv() as message:
                        assert message.gather() == payload[:MIB]
                assert set(await asyncio.gather(*writing, *sending)) == {Status.OK}
            for start in (1007, 1000 + size + 50):
                assert bytes_of(target, start, size) == payload
            for start, end in ((0, 1007), (1007 + size, 1050 + size), (1050 + 2 * size, 2 * size + 8192)):
                assert set(bytes_of(target, start, end - start)) <= {0xEE}
            two.deregister(remote)


# -- refused --------------------------------------------------------------------------------------------------------


async def test_refused__each_with_its_status_and_the_others_complete() -> None:
    bad = Status.REMOTE_ERROR_BAD_ADDRESS
    with Region(MIB) as target, Region(MIB) as mine, memory(content(MIB, seed=SEED)) as source:
        async with pair() as (one, two, here, there):
            readable = two.register(target, offset=0, length=1000, access=Access.REMOTE_READ, peers=[there])
            writable = two.register(
                target, offset=0, length=1000, access=Access.LOCAL_WRITE | Access.REMOTE_WRITE, peers=[there]
            )
            local = one.register(mine, offset=0, length=1000, access=Access.LOCAL_WRITE)
            unwritable = one.register(mine, offset=0, length=1000, access=Access.REMOTE_READ, peers=[here])
            cases = [
                (here.post_write(source, offset=0, length=MIB, key=readable.remote_key, target_offset=0), bad),
                (here.post_write(source, offset=0, length=1, key=readable.remote_key ^ 1, target_offset=0), bad),
                (here.post_write(source, offset=0, length=2, key=writable.remote_key, target_offset=999), bad),
                (here.post_read(local, offset=0, length=1, key=writable.remote_key, source_offset=0), bad),
                (here.post_read(local, offset=0, length=2, key=readable.remote_key, source_offset=999), bad),
                (
                    here.post_read(unwritable, offset=0, length=1, key=readable.remote_key, source_offset=0),
                    Status.LOCAL_ERROR_INVALID_LKEY,
                ),
                (
                    here.post_read(local, offset=999, length=2, key=readable.remote_key, source_offset=0),
                    Status.LOCAL_ERROR_INVALID_LKEY,
                ),
                (here.post_read(local, offset=0, length=1000, key=readable.remote_key, source_offset=0), Status.OK),
            ]
            async with asyncio.timeout(PATIENCE_S):
                assert [await future for future, _ in cases] == [status for _, status in cases]
            assert not any(bytes_of(target, 0, MIB))
            await send(here, b"and goes on")
            assert await receive(there) == b"and goes on"


async def test_refused__a_key_of_another_peer() -> None:
    """Each peer has learned all keys; a registration belongs to those that it names."""
    with Region(200) as target, memory(b"0123456789") as source, Region(10) as back:
        async with endpoints(SMALL) as (client, server):
            port = server.address[1]
            ends = [(await client.connect("127.0.0.1", port=port), await server.accept()) for _ in range(2)]
            keys = [
                server.register(target, offset=100 * index, length=100, access=ALL, peers=[there]).remote_key
                for index, (_, there) in enumerate(ends)
            ]
            shared = server.register(target, offset=0, length=200, access=ALL, peers=[there for _, there in ends])
            local = client.register(back, offset=0, length=10, access=Access.LOCAL_WRITE)
            for index, (here, _) in enumerate(ends):
                for number, key in enumerate([*keys, shared.remote_key]):
                    expected = Status.OK if number in (index, 2) else Status.REMOTE_ERROR_BAD_ADDRESS
                    assert await here.post_write(source, offset=0, length=10, key=key, target_offset=20) is expected
                    assert await here.post_read(local, offset=0, length=10, key=key, source_offset=20) is expected
            assert bytes_of(target, 20, 10) == bytes_of(target, 120, 10) == b"0123456789"


async def test_register__for_nobody_and_for_a_peer_of_another_endpoint_bad_flow() -> None:
    with Region(4096) as region:
        async with pair() as (one, two, here, _):
            with pytest.raises(RegistrationError, match="name the peers, or None for all"):
                one.register(region, offset=0, length=1, access=Access.REMOTE_READ)
            with pytest.raises(UsageError, match="belongs to another endpoint"):
                two.register(region, offset=0, length=1, access=Access.REMOTE_READ, peers=[here])


async def test_post__invalid_arguments_bad_flow() -> None:
    with Region(4096) as region:
        async with pair() as (one, _, here, there):
            local = one.register(region, offset=0, length=4096, access=ALL, peers=[here])
            with pytest.raises(RegionError, match="not within"):
                here.post_write(region, offset=1, length=4096, key=1, target_offset=0)
            with pytest.raises(UsageError, match="immediate: -1"):
                here.post_write(region, offset=0, length=1, key=1, target_offset=0, immediate=-1)
            status = await here.post_read(local, offset=0, length=MAX_MESSAGE_BYTES + 1, key=1, source_offset=0)
            assert status is Status.LOCAL_ERROR_BAD_LENGTH
            with pytest.raises(RegistrationError, match="needs LOCAL_WRITE"):
                one.register(region, offset=0, length=1, access=Access.REMOTE_WRITE, peers=[here])
            await here.close()
            with pytest.raises(PeerError):
                here.post_write(region, offset=0, length=1, key=1, target_offset=0)
            with pytest.raises(PeerError):
                here.post_read(local, offset=0, length=1, key=1, source_offset=0)
            async with asyncio.timeout(PATIENCE_S):
                await there.wait_ended()
                with pytest.raises(PeerError):
                    await there.recv_write()


async def test_recv_write__makes_room_for_the_next() -> None:
    config = replace(SMALL, protocol=replace(SMALL.protocol, receive_window_messages=8))
    async with asyncio.timeout(PATIENCE_S), pair(config=config) as (_, two, here, there):
        with Region(100) as target, memory(b"0123456789") as source:
            registration = two.register(target, offset=0, length=100, access=ALL, peers=[there])
            key = registration.remote_key
            writing = [
                here.post_write(source, offset=0, length=1, key=key, target_offset=0, immediate=number)
                for number in range(30)
            ]
            assert await here.post_write(source, offset=0, length=10, key=key, target_offset=50) is Status.OK
            await asyncio.gather(*writing[:8])
            assert not any(future.done() for future in writing[8:]), "the first were not received by recv_write"
            immediates = [(await there.recv_write()).immediate for _ in range(30)]
            assert sorted(immediates) == list(range(30))
            assert set(await asyncio.gather(*writing)) == {Status.OK}
            two.deregister(registration)


# -- cancel, deregister -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reads", [False, True])
async def test_deregister__during_a_transfer_ends_it_at_both_ends(*, reads: bool) -> None:
    """Between two checks at most a PSN window lands, which is a small part of the whole."""
    size = 24 * MIB
    config = replace(SMALL, protocol=replace(SMALL.protocol, window_packets=MIN_PEER_WINDOW_PACKETS))
    assert MIN_PEER_WINDOW_PACKETS * config.datagram_bytes <= size // 32
    with Region(size) as target, Region(size) as source:
        async with pair(config=config) as (one, two, here, there):
            remote = two.register(target, offset=0, length=size, access=ALL, peers=[there])
            local = one.register(source, offset=0, length=size, access=ALL, peers=[here])
            if reads:
                end, request = (
                    here,
                    here.post_read(local, offset=0, length=size, key=remote.remote_key, source_offset=0),
                )
            else:
                end, request = (
                    there,
                    here.post_write(source, offset=0, length=size, key=remote.remote_key, target_offset=0),
                )
            async with asyncio.timeout(PATIENCE_S):
                await until(lambda: end.landed_bytes >= MIB, pause_s=0)
                assert end.landed_bytes < size
                two.deregister(remote)
                with pytest.raises(RegistrationError, match="once is enough"):
                    two.deregister(remote)
                assert await request is Status.REMOTE_ERROR_BAD_ADDRESS
            await send(here, b"and goes on")
            assert await receive(there) == b"and goes on"


async def test_close__releases_registered_regions() -> None:
    region = Region(4096)
    async with pair() as (one, _, here, _):
        one.register(region, offset=0, length=4096, access=ALL, peers=[here])
        with pytest.raises(RegionError, match="live views"):
            region.close()
    region.close()


class Ends:
    """Notes what becomes of the requests without a future."""

    def __init__(self) -> None:
        self.statuses: dict[int, Status] = {}

    def on_message(self, message: Any) -> None:
        raise AssertionError(message)

    def on_completion(self, request: int, *, status: Status) -> None:
        self.statuses[request] = status

    def on_ended(self) -> None:
        pass


async def test_write__without_a_future_is_told_to_the_handlers_of_both_ends() -> None:
    """More of them than may be outstanding without being received: taking one gives its place back."""
    config = replace(PLAIN, protocol=replace(PLAIN.protocol, receive_window_messages=8))
    count, size = 50, 10_000
    payload = content(size, seed=SEED)
    with Region(count * size) as target, memory(payload) as source:
        async with pair(config=config) as (_, two, here, there):
            key = two.register(target, offset=0, length=count * size, access=ALL, peers=[there]).remote_key
            ends, taken = Ends(), list[WriteNotification]()
            here.attach(ends)
            there.attach(Ends(), on_write=taken.append)
            requests = [
                here.write(source.address, length=size, key=key, target_offset=number * size, immediate=number)
                for number in range(count)
            ]
            refused = here.write(source.address, length=size, key=key + 1, target_offset=0, immediate=0)
            async with asyncio.timeout(PATIENCE_S):
                await until(lambda: len(ends.statuses) == count + 1, pause_s=0)
            assert ends.statuses == {
                **dict.fromkeys(requests, Status.OK),
                refused: Status.REMOTE_ERROR_BAD_ADDRESS,
            }
            assert sorted(each.immediate for each in taken) == [*range(count)]
            assert bytes_of(target, 0, count * size) == payload * count
