"""Three servers as processes, on loopback: what was acknowledged is there, whichever of them is killed or stops."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from random import Random

import pytest

from nitro_emu.ebs import remote, replicas
from nitro_emu.ebs.capsule import CapsuleOpcode
from nitro_emu.ebs.catalog import Volume
from nitro_emu.ebs.device import BLOCK_BYTES, BlockExtent
from nitro_emu.ebs.errors import DeviceError, VolumeError
from nitro_emu.ebs.replicas import ReplicatedVolume
from nitro_emu.ebs.server.entries import BlockKind
from tests.nitro_emu.ebs.server_processes import ServerProcess, security, volume_on
from tests.patience import PATIENCE_S

SIZE_BYTES = 8 << 20


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    """Of all tests, each of which has a volume of its own."""
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("servers")
        found = [ServerProcess(directory / str(number)) for number in range(3)]
        for server in found:
            stack.callback(server.kill)
        for server in found:
            server.ready()
        yield found


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine's servers may answer later than a user wants to wait."""
    monkeypatch.setattr(replicas, "ATTACH_BOUND_S", float(PATIENCE_S))


def on(servers: list[ServerProcess], number: int) -> Volume:
    return volume_on(servers, number=number, size_bytes=SIZE_BYTES)


def attached(number: int, servers: list[ServerProcess]) -> AbstractAsyncContextManager[ReplicatedVolume]:
    return remote.attached(on(servers, number), security=security())


async def create(number: int, servers: list[ServerProcess]) -> None:
    await remote.create(on(servers, number), security=security())


async def read(volume: ReplicatedVolume, offset: int, *, length: int) -> bytes:
    into = bytearray(length)
    await volume.read(offset, into=memoryview(into))
    return bytes(into)


class Writer:
    """Writes random blocks, and knows what is there."""

    def __init__(self, volume: ReplicatedVolume, *, seed: int) -> None:
        self._volume = volume
        self._random = Random(seed)
        self.wanted = bytearray(SIZE_BYTES)
        self.writes = 0

    async def write(self) -> None:
        blocks = self._random.choice((1, 4, 16, 300))
        offset = self._random.randrange(SIZE_BYTES // BLOCK_BYTES - blocks) * BLOCK_BYTES
        data = self._random.randbytes(blocks * BLOCK_BYTES)
        await self._volume.write(offset, data=memoryview(data), fua=False)
        self.wanted[offset : offset + len(data)] = data
        self.writes += 1

    async def check(self) -> None:
        assert await read(self._volume, 0, length=SIZE_BYTES) == self.wanted


async def test_no_acknowledged_write_is_lost_when_servers_are_killed(servers: list[ServerProcess]) -> None:
    await create(1, servers)
    async with attached(1, servers) as volume:
        writer = Writer(volume, seed=1)
        for killed in (0, 1):
            for _ in range(8):
                await writer.write()
            servers[killed].kill()
            for _ in range(8):
                await writer.write()
            await writer.check()
            servers[killed].start()
            servers[killed].ready()
            await volume.wait_whole()
        await writer.check()
    servers[2].kill()  # what is left is what was given back to the others
    async with attached(1, servers) as again:
        assert await read(again, 0, length=SIZE_BYTES) == writer.wanted
    reports = await remote.scrub(on(servers[:2], 1), security=security())
    assert [(each.failure, each.corrupt_blocks) for each in reports] == [(None, 0), (None, 0)]
    servers[2].start()
    servers[2].ready()


async def test_a_server_that_stops_delays_nobody(servers: list[ServerProcess]) -> None:
    await create(2, servers)
    async with attached(2, servers) as volume:
        writer = Writer(volume, seed=2)
        await writer.write()
        servers[0].pause()
        try:
            for _ in range(10):
                await writer.write()
            await writer.check()
        finally:
            servers[0].go_on()
        await volume.wait_whole()
        await writer.check()


async def test_zeroes_and_extents(servers: list[ServerProcess]) -> None:
    await create(3, servers)
    async with attached(3, servers) as volume:
        assert await volume.extents(0, length_bytes=SIZE_BYTES) == [BlockExtent(4 << 20, hole=True, zero=True)]
        await volume.write(0, data=memoryview(b"x" * (8 * BLOCK_BYTES)), fua=True)
        await volume.trim(BLOCK_BYTES, length_bytes=2 * BLOCK_BYTES)
        await volume.write_zeroes(4 * BLOCK_BYTES, length_bytes=BLOCK_BYTES, fua=False, may_trim=False)
        await volume.flush()
        x, zero = b"x" * BLOCK_BYTES, bytes(BLOCK_BYTES)
        assert await read(volume, 0, length=8 * BLOCK_BYTES) == x + 2 * zero + x + zero + 3 * x
        assert await volume.extents(0, length_bytes=6 * BLOCK_BYTES) == [
            BlockExtent(BLOCK_BYTES, hole=False, zero=False),
            BlockExtent(2 * BLOCK_BYTES, hole=True, zero=True),
            BlockExtent(BLOCK_BYTES, hole=False, zero=False),
            BlockExtent(BLOCK_BYTES, hole=False, zero=True),
            BlockExtent(BLOCK_BYTES, hole=False, zero=False),
        ]
        with pytest.raises(DeviceError, match="4096 bytes at 8388608 are no blocks of 8388608 bytes"):
            await read(volume, SIZE_BYTES, length=BLOCK_BYTES)


async def test_what_absent_blocks_had_is_asked_for_over_a_real_link(servers: list[ServerProcess]) -> None:
    await create(6, servers)
    async with attached(6, servers) as volume:
        await volume.write(0, data=memoryview(b"x" * BLOCK_BYTES), fua=False)
        await volume.wait_whole()
        for number in range(len(servers)):
            held = await volume._replicas.entries(
                number, epoch=volume.epoch, first=0, count=2, opcode=CapsuleOpcode.HELD
            )
            assert held.kind.tolist() == [BlockKind.DATA, BlockKind.HOLE]


async def test_a_second_writer_waits_for_the_first(servers: list[ServerProcess]) -> None:
    await create(4, servers)
    async with attached(4, servers):
        with pytest.raises(VolumeError, match=r"another writer has it: detach it there, or wait for 2 s after its end"):
            async with attached(4, servers):
                pass
    async with attached(4, servers) as volume:
        assert volume.epoch == 2


async def test_a_replica_whose_directory_was_removed_is_filled_again(servers: list[ServerProcess]) -> None:
    await create(5, servers)
    async with attached(5, servers) as volume:
        writer = Writer(volume, seed=5)
        await writer.write()
        servers[1].kill()
        shutil.rmtree(servers[1].directory / f"{5:016x}")
        await writer.write()
        servers[1].start()
        servers[1].ready()
        await volume.wait_whole()
        servers[0].kill()
        await writer.check()
    servers[0].start()
    servers[0].ready()
