"""Queue pairs for asyncio, between two devices of a card."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from devmem import Region, RegionError
from nitro_emu.aio import Access, QpAddress, QpSettings, Source, Status, VerbsError
from tests.nitro_emu.aio.ends import End, ends
from tests.srd.loopback import content

FEW_BUFFERS = QpSettings(receive_buffers=2)


async def receive(end: End) -> bytes:
    with await end.qp.recv() as message:
        return message.gather()


# -- messages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size_bytes", [0, 1, 32, 33, 1000, 8000])
async def test_send__bytes_arrive(run_dir: Path, size_bytes: int) -> None:
    payload = content(size_bytes, seed=1)
    async with ends(run_dir) as (here, there):
        sending = here.qp.send(here.to, payload, immediate=0xFFFFFFFF)
        with await there.qp.recv() as message:
            assert message.gather() == payload
            assert message.immediate == 0xFFFFFFFF
            assert message.source == Source(here.device.gid, here.qp.address.qpn)
        assert await sending is Status.OK
        assert (here.device.bytes_copied, there.device.bytes_copied) == (size_bytes, size_bytes)


@pytest.mark.parametrize("adaptive_poll_s", [0.0, 0.05])
async def test_send__back_and_forth(run_dir: Path, adaptive_poll_s: float) -> None:
    """Whether the event loop sleeps or polls between messages."""
    async with ends(run_dir, adaptive_poll_s=adaptive_poll_s) as (here, there):
        for number in range(300):
            sending = here.qp.send(here.to, number.to_bytes(4, "big"))
            answering = there.qp.send(there.to, await receive(there), immediate=number)
            with await here.qp.recv() as message:
                assert (message.gather(), message.immediate) == (number.to_bytes(4, "big"), number)
            assert set(await asyncio.gather(sending, answering)) == {Status.OK}


async def test_send__registered_memory_without_a_copy(run_dir: Path) -> None:
    payload = content(5000, seed=2)
    async with ends(run_dir) as (here, there):
        with Region(1 << 16) as region:
            with region.view(100, length=5000) as view:
                view[:] = payload
            memory = await here.device.register(region, offset=64)
            sending = here.qp.send(here.to, memory.slice(36, length=5000))
            assert await receive(there) == payload
            assert await sending is Status.OK
            assert here.device.bytes_copied == 0
            await memory.close()


async def test_send__the_longest_message_and_one_byte_more(run_dir: Path) -> None:
    async with ends(run_dir) as (here, there):
        most = here.device.mtu_bytes
        payload = content(most, seed=3)
        sending = here.qp.send(here.to, payload)
        assert await receive(there) == payload
        assert await sending is Status.OK
        with pytest.raises(VerbsError, match="send it in parts"):
            here.qp.send(here.to, bytes(most + 1))
        with Region(most + 1) as region:
            memory = await here.device.register(region)
            assert await here.qp.send(here.to, memory.slice(length=most + 1)) is Status.LOCAL_ERROR_BAD_LENGTH
            await memory.close()


async def test_send__more_than_the_queues_hold(run_dir: Path) -> None:
    small = QpSettings(send_requests=8, receive_buffers=8)
    payloads = [content(number % 700, seed=number) for number in range(500)]
    async with ends(run_dir, one=small, two=small) as (here, there):
        sending = asyncio.gather(
            *(here.qp.send(here.to, payload, immediate=number) for number, payload in enumerate(payloads))
        )
        arrived: dict[int | None, bytes] = {}
        for _ in payloads:
            with await there.qp.recv() as message:
                arrived[message.immediate] = message.gather()
        assert arrived == dict(enumerate(payloads))
        assert set(await sending) == {Status.OK}
        assert here.qp.open_requests == 0


async def test_send__waits_for_buffers_that_the_receiver_holds(run_dir: Path) -> None:
    async with ends(run_dir, two=FEW_BUFFERS) as (here, there):
        sending = [here.qp.send(here.to, bytes([number])) for number in range(5)]
        held = [await there.qp.recv(), await there.qp.recv()]
        assert {message.view[0] for message in held} < {*range(5)}
        for message in held:
            message.release()
            message.release()
        for _ in range(3):
            await receive(there)
        assert set(await asyncio.gather(*sending)) == {Status.OK}


async def test_send__without_retries_a_full_receiver_is_a_status(run_dir: Path) -> None:
    async with ends(run_dir, one=QpSettings(rnr_retry=0), two=FEW_BUFFERS) as (here, there):
        assert [await here.qp.send(here.to, b"x") for _ in range(3)] == [Status.OK, Status.OK, Status.REMOTE_ERROR_RNR]
        with await there.qp.recv():
            pass
        assert await here.qp.send(here.to, b"x") is Status.OK


@pytest.mark.parametrize(("qpn", "qkey"), [(1, 0), (0, 1)])
async def test_send__to_another_number_or_key_bad_flow(run_dir: Path, qpn: int, qkey: int) -> None:
    async with ends(run_dir) as (here, there):
        right = there.qp.address
        wrong = QpAddress(right.gid, right.qpn + 1000 * qpn, right.qkey ^ qkey)
        assert await here.qp.send(await here.device.remote(wrong), b"x") is Status.REMOTE_ERROR_BAD_DEST_QPN


async def test_send__what_no_request_has_bad_flow(run_dir: Path) -> None:
    async with ends(run_dir) as (here, _):
        with pytest.raises(VerbsError, match="immediate: -1"):
            here.qp.send(here.to, b"x", immediate=-1)
        await here.to.close()
        with pytest.raises(VerbsError, match="is closed; open it again"):
            here.qp.send(here.to, b"x")
        await here.to.close()


async def test_recv__cancelled_loses_nothing(run_dir: Path) -> None:
    async with ends(run_dir) as (here, there):
        receiving = asyncio.ensure_future(there.qp.recv())
        await asyncio.sleep(0)
        receiving.cancel()
        assert await here.qp.send(here.to, b"x") is Status.OK
        assert await receive(there) == b"x"


async def test_message__is_gone_after_its_release_bad_flow(run_dir: Path) -> None:
    async with ends(run_dir) as (here, there):
        here.qp.send(here.to, b"x")
        message = await there.qp.recv()
        message.release()
        with pytest.raises(VerbsError, match="was released"):
            message.gather()


# -- writes and reads -----------------------------------------------------------------------------------------------


async def test_write_and_read__megabytes(run_dir: Path) -> None:
    size = 3 << 20
    payload = content(size, seed=4)
    async with ends(run_dir) as (here, there):
        with Region(size) as source, Region(size) as target, Region(size) as back:
            source.array[:] = bytearray(payload)
            sent = await here.device.register(source)
            remote = await there.device.register(
                target, access=Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
            )
            writing = here.qp.write(
                here.to, sent.slice(), rkey=remote.rkey, remote_address=remote.address, immediate=77
            )
            written = await there.qp.recv_write()
            assert (written.length, written.immediate, written.source.qpn) == (size, 77, here.qp.address.qpn)
            assert await writing is Status.OK
            assert bytes(target.array) == payload
            local = await here.device.register(back)
            reading = here.qp.read(here.to, local.slice(), rkey=remote.rkey, remote_address=remote.address)
            assert await reading is Status.OK
            assert bytes(back.array) == payload
            short = here.qp.write(here.to, b"short" * 10, rkey=remote.rkey, remote_address=remote.address + 5)
            assert await short is Status.OK
            assert bytes(target.array[5:55]) == b"short" * 10
            for memory in (sent, local, remote):
                await memory.close()


async def test_write__more_notifications_than_buffers(run_dir: Path) -> None:
    async with ends(run_dir, two=FEW_BUFFERS) as (here, there):
        with Region(4096) as target:
            memory = await there.device.register(target, access=Access.LOCAL_WRITE | Access.REMOTE_WRITE)
            writing = [
                here.qp.write(here.to, b"x", rkey=memory.rkey, remote_address=memory.address, immediate=number)
                for number in range(10)
            ]
            immediates = {(await there.qp.recv_write()).immediate for _ in writing}
            assert immediates == {*range(10)}
            assert set(await asyncio.gather(*writing)) == {Status.OK}
            await memory.close()


async def test_write__beyond_what_is_registered_bad_flow(run_dir: Path) -> None:
    async with ends(run_dir) as (here, there):
        with Region(4096) as target:
            memory = await there.device.register(target, access=Access.LOCAL_WRITE | Access.REMOTE_WRITE)
            for rkey, address in ((memory.rkey ^ 1, memory.address), (memory.rkey, memory.address + 4090)):
                status = await here.qp.write(here.to, bytes(8), rkey=rkey, remote_address=address)
                assert status is Status.REMOTE_ERROR_BAD_ADDRESS
            await memory.close()
            late = await here.qp.write(here.to, bytes(8), rkey=memory.rkey, remote_address=memory.address)
            assert late is Status.REMOTE_ERROR_BAD_ADDRESS
        with pytest.raises(VerbsError, match="register it, and give a Slice"):
            here.qp.write(here.to, bytes(1 << 20), rkey=1, remote_address=0)


async def test_slice__out_of_bounds_bad_flow(run_dir: Path) -> None:
    async with ends(run_dir) as (here, _):
        with Region(8192) as region:
            memory = await here.device.register(region, length=4096)
            assert memory.slice(4096).length == 0
            for offset, length in ((-1, 1), (0, 4097), (4097, None), (0, -1)):
                with pytest.raises(VerbsError):
                    memory.slice(offset, length=length)
            await memory.close()


# -- cancelling, and the end ----------------------------------------------------------------------------------------


async def test_cancel__memory_is_kept_until_the_card_has_done_with_it(run_dir: Path) -> None:
    async with ends(run_dir, two=FEW_BUFFERS) as (here, there):
        held = []
        for _ in range(2):
            assert await here.qp.send(here.to, b"x") is Status.OK
            held.append(await there.qp.recv())
        region = Region(4096)
        memory = await here.device.register(region)
        sending = here.qp.send(here.to, memory.slice(length=100))  # for which there is no buffer
        sending.cancel()
        with pytest.raises(RegionError):
            region.close()
        held[0].release()
        assert len(await receive(there)) == 100
        await here.qp.drain()
        await memory.close()
        region.close()
        held[1].release()


async def test_cancel__a_request_that_waits_here_is_not_sent(run_dir: Path) -> None:
    async with ends(run_dir, one=QpSettings(send_requests=1), two=FEW_BUFFERS) as (here, there):
        first, second, third = (here.qp.send(here.to, name) for name in (b"1", b"2", b"3"))
        second.cancel()
        assert [await receive(there), await receive(there)] == [b"1", b"3"]
        assert [await first, await third] == [Status.OK, Status.OK]
        assert second.cancelled()


async def test_close__ends_everything(run_dir: Path) -> None:
    async with ends(run_dir, two=FEW_BUFFERS) as (here, there):
        for _ in range(2):
            assert await here.qp.send(here.to, b"x") is Status.OK
        stuck = [here.qp.send(here.to, bytes(100)) for _ in range(200)]
        receiving = asyncio.ensure_future(here.qp.recv())
        await asyncio.sleep(0)
        await here.qp.close()
        assert {await future for future in stuck} == {Status.FLUSHED}
        with pytest.raises(VerbsError, match="closed"):
            await receiving
        with pytest.raises(VerbsError, match="closed"):
            here.qp.send(here.to, b"x")
        await here.qp.close()
        assert here.qp.ended
        again = await here.device.queue_pair()
        message = await there.qp.recv()
        message.release()
        assert await again.send(here.to, b"x") is Status.OK
