"""srd.dask: comms as distributed's servers and clients use them; errors are those that it expects."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="distributed is not installed: make test-torch")

import dask  # noqa: E402
from distributed.comm import CommClosedError, connect, listen, parse_host_port, registry  # noqa: E402
from distributed.protocol import Serialized, deserialize, to_serialize  # noqa: E402

from srd.dask.backend import SrdBackend  # noqa: E402
from tests.patience import PATIENCE_S  # noqa: E402
from tests.srd.lossy import relay  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
Handler = Callable[[Any], Awaitable[None]]


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    """The entry point, where the project is not installed."""
    registry.backends["srd"] = SrdBackend()
    yield
    del registry.backends["srd"]


@asynccontextmanager
async def serving(handler: Handler, **arguments: Any) -> AsyncIterator[Any]:
    listener = await listen("srd://127.0.0.1", handler, **arguments)
    try:
        yield listener
    finally:
        listener.stop()


async def echo(comm: Any) -> None:
    try:
        while True:
            await comm.write(await comm.read())
    except CommClosedError:
        await comm.close()


def same(value: Any, other: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool(np.array_equal(value, other))
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(same(value[key], other[key]) for key in value)
    if isinstance(value, list | tuple):
        return len(value) == len(other) and all(map(same, value, other))
    return bool(value == other)


async def test_messages__of_every_length_come_back_in_order() -> None:
    sizes = [0, 1, 1000, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, (1 << 20) + 3, 20_000_003]
    messages: list[Any] = [{"number": number, "data": b"x" * size} for number, size in enumerate(sizes)]
    arrays = [np.arange(size, dtype=np.uint8) for size in sizes]
    messages += [{"arrays": [to_serialize(array) for array in arrays]}, {}, [1, 2, "three"]]
    async with serving(echo) as listener:
        comm = await connect(listener.contact_address)
        for message in messages:
            await comm.write(message)
        for message in messages:
            found = await comm.read()
            wanted = {"arrays": arrays} if "arrays" in message else message
            assert same(wanted, list(found) if isinstance(wanted, list) else found)
        await comm.close()


@pytest.mark.parametrize("seed", range(2))
async def test_messages__keep_their_order_on_a_bad_network(seed: int) -> None:
    messages = [{"number": number, "data": bytes([number]) * (997 * number * (number % 7))} for number in range(200)]
    async with serving(echo) as listener, relay(listener.get_host_port()[1], seed=seed) as network:
        comm = await connect(f"srd://127.0.0.1:{network.port}")
        for message in messages:
            await comm.write(message)
        assert [await comm.read() for _ in messages] == messages
        assert network.lost
        await comm.close()


async def test_arrays__can_be_written_to() -> None:
    async with serving(echo) as listener:
        comm = await connect(listener.contact_address)
        for size in (1000, 1_000_000):
            await comm.write({"array": to_serialize(np.zeros(size))})
            found = (await comm.read())["array"]
            found += 1
            assert found.sum() == size
        await comm.close()


async def test_write__does_not_wait_for_the_reader() -> None:
    """More than the receive region holds; then all of it is read."""
    data = np.random.default_rng(1).integers(0, 255, 16 << 20, dtype=np.uint8)
    count, go = 8, asyncio.Event()
    sums = []

    async def reading_late(comm: Any) -> None:
        await go.wait()
        sums.extend([int((await comm.read())["data"].sum()) for _ in range(count)])
        await comm.write("read")

    async with serving(reading_late) as listener:
        comm = await connect(listener.contact_address)
        for _ in range(count):
            await asyncio.wait_for(comm.write({"data": to_serialize(data)}), PATIENCE_S)
        go.set()
        assert await comm.read() == "read"
        assert sums == [int(data.sum())] * count
        await comm.close()


async def test_close__lets_what_was_written_arrive_and_ends_the_other_end() -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def hear(comm: Any) -> None:
        try:
            while True:
                heard.put_nowait(await comm.read())
        except CommClosedError:
            heard.put_nowait(comm.closed())

    async with serving(hear) as listener:
        comm = await connect(listener.contact_address)
        await comm.write({"data": b"z" * 3_000_000})
        await comm.close()
        assert comm.closed()
        assert await heard.get() == {"data": b"z" * 3_000_000}
        assert await heard.get() is True
        with pytest.raises(CommClosedError):
            await comm.write("more")
        with pytest.raises(CommClosedError):
            await comm.read()


async def test_close__leaves_what_has_arrived_to_be_read() -> None:
    """Also when the listener has stopped, and this was the last comm of its endpoint."""
    go, heard = asyncio.Event(), asyncio.Event()
    messages = [{"number": number, "data": b"q" * (300_000 * (number % 2))} for number in range(6)]
    found = []

    async def read_late(comm: Any) -> None:
        await go.wait()
        found.extend([await comm.read() for _ in messages])
        with pytest.raises(CommClosedError):
            await comm.read()
        heard.set()

    async with serving(read_late) as listener:
        comm = await connect(listener.contact_address)
        for message in messages:
            await comm.write(message)
        await comm.close()
        shared = listener._shared
    assert not shared.is_closed, "it has what is to be read"
    go.set()
    await heard.wait()
    assert found == messages
    assert shared.is_closed


async def test_abort__wakes_the_readers_at_both_ends() -> None:
    ended = asyncio.Event()

    async def hear(comm: Any) -> None:
        with pytest.raises(CommClosedError):
            await comm.read()
        ended.set()

    async with serving(hear) as listener:
        comm = await connect(listener.contact_address)
        reading = asyncio.ensure_future(comm.read())
        await asyncio.sleep(0)
        comm.abort()
        with pytest.raises(CommClosedError):
            await reading
        await ended.wait()


async def test_a_cancelled_read__ends_the_comm() -> None:
    async with serving(echo) as listener:
        comm = await connect(listener.contact_address)
        reading = asyncio.ensure_future(comm.read())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert comm.closed()


async def test_a_stopped_listener__refuses_and_its_comms_go_on() -> None:
    async with serving(echo) as listener:
        comm = await connect(listener.contact_address)
        listener.stop()
        with pytest.raises(OSError, match="Timed out trying to connect"):
            await connect(listener.contact_address, timeout=0.2)
        await comm.write("still here")
        assert await comm.read() == "still here"
        await comm.close()


async def test_addresses() -> None:
    async with serving(echo) as listener, serving(echo) as other:
        assert listener.listen_address == listener.contact_address != other.listen_address
        comm = await connect(listener.contact_address)
        assert comm.peer_address == listener.contact_address
        assert parse_host_port(comm.local_address.removeprefix("srd://"))[0] == "127.0.0.1"
        assert comm.same_host
        await comm.close()


async def test_deserialize__not_unless_it_is_asked_for() -> None:
    kinds = []

    async def look(comm: Any) -> None:
        found = (await comm.read())["array"]
        kinds.append(type(found))
        await comm.write({"sum": float(deserialize(found.header, found.frames).sum())})

    async with serving(look, deserialize=False) as listener:
        comm = await connect(listener.contact_address)
        await comm.write({"array": to_serialize(np.ones(1_000_000))})
        assert (await comm.read())["sum"] == 1_000_000
        await comm.close()
    assert kinds == [Serialized]


async def test_security__encryption_that_is_required_needs_a_key(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"srd has no key: name a file in distributed\.comm\.srd\.key-file"):
        await listen("srd://127.0.0.1", echo, require_encryption=True)
    key = tmp_path / "key"
    key.write_text("a long passphrase, for this test")
    key.chmod(0o600)
    with dask.config.set({"distributed.comm.srd.key-file": str(key)}):
        async with serving(echo, require_encryption=True) as listener:
            comm = await connect(listener.contact_address, require_encryption=True)
            await comm.write("secret")
            assert await comm.read() == "secret"
            with dask.config.set({"distributed.comm.srd.key-file": None}), pytest.raises(OSError, match="Timed out"):
                await asyncio.to_thread(asyncio.run, connect(listener.contact_address, timeout=0.2))
            await comm.close()


async def test_a_cluster__computes_and_moves_arrays_between_workers() -> None:
    cluster = distributed.LocalCluster(
        protocol="srd", n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None, asynchronous=True
    )
    async with cluster, distributed.Client(cluster, asynchronous=True) as client:
        assert cluster.scheduler_address.startswith("srd://")
        first, second = (await client.scheduler.identity())["workers"]
        array = client.submit(np.full, 5_000_000, 3, workers=[first])
        total = client.submit(np.sum, array, workers=[second])
        assert await total.result() == 15_000_000


async def test_a_process_that_is_killed__is_missed_long_before_a_silent_one() -> None:
    """The kernel of its host says that its ports are closed."""
    program = Path(__file__).with_name("listening.py")
    with dask.config.set({"distributed.comm.timeouts.tcp": "1000s"}):
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(program), stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        assert process.stdout is not None
        comm = await connect((await process.stdout.readline()).decode().strip())
        await comm.write("are you there?")
        assert await comm.read() == "are you there?"
        process.kill()
        await process.wait()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(CommClosedError, match="no packet for"):
                await comm.read()
        assert comm.closed()
