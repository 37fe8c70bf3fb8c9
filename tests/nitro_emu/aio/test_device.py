"""Devices for asyncio: opening, what happens when the card dies, and what is left of it."""

from __future__ import annotations

import asyncio
import errno
import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devmem import Region
from nitro_emu.aio import Device, QpAddress, QpSettings, Status, VerbsError
from tests.nitro_emu.aio.ends import ends
from tests.nitro_emu.card_process import loopback_vf
from tests.nitro_emu.processes import card_file, nitro_card
from tests.patience import PATIENCE_S
from tests.srd.cli.processes import Process
from tests.srd.loopback import open_files


@contextmanager
def mortal_card(directory: Path) -> Iterator[tuple[Process, Path]]:
    """A card that a test may kill; gives it and its directory of sockets."""
    plain = "security: {mode: plain}"
    config = card_file(directory, vfs=[loopback_vf("efa_0", more=plain), loopback_vf("efa_1", more=plain)])
    with nitro_card("run", str(config), "--json") as process:
        process.event("ready")
        yield process, directory / "run"


async def test_open__no_such_device_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(VerbsError, match="'efa_7' is no device in") as caught:
        await Device.open("efa_7", directory=tmp_path)
    assert caught.value.errno == errno.ENODEV


async def test_queue_pair__more_than_the_device_has_bad_flow(run_dir: Path) -> None:
    async with await Device.open("efa_0", directory=run_dir) as device:
        with pytest.raises(VerbsError, match="max_send_wr"):
            await device.queue_pair(QpSettings(send_requests=10_000))


async def test_remote__one_handle_for_all_queue_pairs_of_a_device(run_dir: Path) -> None:
    async with await Device.open("efa_0", directory=run_dir) as device:
        addresses = [QpAddress(device.gid, number, 0) for number in (1, 2)]
        one, other = await asyncio.gather(*(device.remote(address) for address in addresses))
        assert one.handle is other.handle
        await one.close()
        assert other.handle is not None
        assert not other.handle.closed
        handle = other.handle
        await other.close()
        assert handle.closed
        again = await device.remote(addresses[0])
        assert again.handle is not None
        assert not again.handle.closed


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
async def test_dead_card__ends_everything_that_waits_bad_flow(tmp_path: Path, number: signal.Signals) -> None:
    with mortal_card(tmp_path) as (card, run_dir):
        async with ends(run_dir, two=QpSettings(receive_buffers=2)) as (here, there):
            sending = [here.qp.send(here.to, bytes(100)) for _ in range(300)]  # more than there are buffers for
            receiving = [asyncio.ensure_future(call()) for call in (here.qp.recv, here.qp.recv_write)]
            assert set(await asyncio.gather(*sending[:2])) == {Status.OK}
            card.kill(number)
            async with asyncio.timeout(PATIENCE_S):
                statuses = set(await asyncio.gather(*sending[2:]))
            assert statuses <= {Status.LOCAL_ERROR_QP_INTERNAL_ERROR, Status.FLUSHED}
            for future in receiving:
                with pytest.raises(VerbsError) as caught:
                    await future
                assert caught.value.errno == errno.EIO
            assert here.device.ended
            with pytest.raises(VerbsError, match="card is gone"):
                here.qp.send(here.to, b"x")
            with Region(4096) as region:
                for call in (
                    here.device.queue_pair(),
                    here.device.remote(there.qp.address),
                    here.device.register(region),
                ):
                    with pytest.raises(VerbsError) as caught:
                        await call
                    assert caught.value.errno == errno.EIO
            messages = [await there.qp.recv(), await there.qp.recv()]  # what had arrived is still there
            assert [message.gather() for message in messages] == [bytes(100)] * 2
            for message in messages:
                message.release()
            with pytest.raises(VerbsError):
                await there.qp.recv()


async def test_dead_card__another_one_can_be_opened(tmp_path: Path) -> None:
    with mortal_card(tmp_path) as (card, run_dir):
        device = await Device.open("efa_0", directory=run_dir)
        qp = await device.queue_pair()
        card.kill(signal.SIGKILL)
        with pytest.raises(VerbsError):
            await qp.recv()
        await device.close()
        card.wait()
    with mortal_card(tmp_path) as (_, run_dir):
        async with ends(run_dir) as (here, there):
            sending = here.qp.send(here.to, b"x")
            (await there.qp.recv()).release()
            assert await sending is Status.OK


async def test_close__ends_everything_that_waits(run_dir: Path) -> None:
    device = await Device.open("efa_0", directory=run_dir)
    qp = await device.queue_pair()
    to = await device.remote(qp.address)
    await device.close()
    await device.close()
    with pytest.raises(VerbsError, match="the device is closed"):
        await qp.recv()
    with pytest.raises(VerbsError, match="the device is closed"):
        qp.send(to, b"x")
    with pytest.raises(VerbsError, match="the device is closed"):
        await device.queue_pair()
    await qp.close()
    await to.close()


async def test_close__leaves_no_descriptor_and_no_thread(run_dir: Path) -> None:
    async def scenario() -> None:
        async with ends(run_dir) as (here, there):
            with Region(1 << 20) as region:
                memory = await here.device.register(region)
                stuck = here.qp.write(here.to, memory.slice(), rkey=1, remote_address=0)
                sending = here.qp.send(here.to, b"x")
                kept = await there.qp.recv()
                assert await sending is Status.OK
                assert await stuck is Status.REMOTE_ERROR_BAD_ADDRESS
                await memory.close()
        del kept, here, there, memory

    await scenario()
    gc.collect()
    before, threads = open_files(), {thread.name for thread in threading.enumerate()}
    for _ in range(5):
        await scenario()
    gc.collect()
    assert open_files() == before
    assert {thread.name for thread in threading.enumerate()} - threads <= {
        name for thread in threading.enumerate() if (name := thread.name).startswith("asyncio_")
    }


async def test_close__of_a_queue_pair_leaves_nothing(run_dir: Path) -> None:
    async with await Device.open("efa_0", directory=run_dir) as device:
        async with await device.queue_pair():
            pass
        gc.collect()
        before = open_files()
        for _ in range(5):
            async with await device.queue_pair() as qp:
                assert not qp.ended
        del qp
        gc.collect()
        assert open_files() == before


async def test_queue_pair__cancelled_while_it_is_made_leaves_nothing(run_dir: Path) -> None:
    async with await Device.open("efa_0", directory=run_dir) as device:
        async with await device.queue_pair():
            pass
        gc.collect()
        before = open_files()
        for _ in range(5):
            making = asyncio.ensure_future(device.queue_pair())
            await asyncio.sleep(0)
            making.cancel()
            with pytest.raises(asyncio.CancelledError):
                await making
        await (await device.queue_pair()).close()  # in the order of the commands
        await asyncio.get_running_loop().shutdown_default_executor()
        gc.collect()
        assert open_files() == before
