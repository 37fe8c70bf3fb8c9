"""Histories of a volume that fails in every way: what each block was written and read, by two writers in turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random

from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import DeviceError, VolumeError
from nitro_emu.ebs.replicas import ReplicatedVolume
from nitro_emu.ebs.server.replica import Replica
from nitro_emu.ebs.server.store import StoreError
from tests.nitro_emu.ebs.linearizability import Operation, is_linearizable
from tests.nitro_emu.ebs.virtual_servers import VOLUME, Link, Memory, Server, run

logging.getLogger("nitro_emu.volume").setLevel(logging.ERROR)  # what fails is played

BLOCKS = 6
SERVERS = 3
TURN_S = 3.0
"""Of a writer."""


def content(value: int) -> bytes:
    return value.to_bytes(8, "big") * (BLOCK_BYTES // 8)


def value_of(data: memoryview | bytes) -> int:
    """Return what was written; a block of two writes is found, too."""
    value = int.from_bytes(data[:8], "big")
    assert bytes(data) == content(value), "a torn block was read"
    return value


@dataclass
class Recorder:
    """What users of a volume have done, block by block."""

    seed: int
    blocks: list[list[Operation]] = field(default_factory=lambda: [[] for _ in range(BLOCKS)])
    failed: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.reads_only = set[ReplicatedVolume]()
        self._next_value = 0

    def check(self) -> None:
        """Raise AssertionError for a block that no block could have been."""
        for block, operations in enumerate(self.blocks):
            listing = "\n".join(map(str, operations))
            assert is_linearizable(operations), f"block {block}:\n{listing}"

    async def read_all(self, volume: ReplicatedVolume) -> None:
        """Read each block, at the end."""
        loop = asyncio.get_running_loop()
        for block in range(BLOCKS):
            operation = Operation(is_write=False, begun_at=loop.time())
            data = memoryview(bytearray(BLOCK_BYTES))
            await volume.read(block * BLOCK_BYTES, into=data)
            operation.value, operation.ended_at = value_of(data), loop.time()
            self.blocks[block].append(operation)

    @asynccontextmanager
    async def users(self, volume: ReplicatedVolume) -> AsyncIterator[None]:
        users = [asyncio.ensure_future(self._user(volume)) for _ in range(3)]
        try:
            yield
        finally:
            for user in users:
                user.cancel()
            for result in await asyncio.gather(*users, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result

    async def _user(self, volume: ReplicatedVolume) -> None:
        random, loop = self.random, asyncio.get_running_loop()
        while True:
            first = random.randrange(BLOCKS)
            count = min(random.choice((1, 1, 1, 2, 3)), BLOCKS - first)
            kind = "read" if volume in self.reads_only else random.choices(("read", "write", "trim"), (5, 5, 1))[0]
            values = [0] * count
            if kind == "write":
                values = list(range(self._next_value + 1, self._next_value + 1 + count))
                self._next_value += count
            operations = [Operation(kind != "read", begun_at=loop.time(), value=value) for value in values]
            for at, operation in enumerate(operations):
                self.blocks[first + at].append(operation)
            try:
                data = await self._do(volume, kind, first, values)
            except DeviceError:
                self.failed += 1
                await asyncio.sleep(0.05)
                continue
            for at, operation in enumerate(operations):
                operation.ended_at = loop.time()
                if kind == "read":
                    operation.value = value_of(data[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES])
            self.done += 1
            await asyncio.sleep(random.expovariate(1 / 0.05))

    @staticmethod
    async def _do(volume: ReplicatedVolume, kind: str, first: int, values: list[int]) -> memoryview:
        data = memoryview(bytearray(b"".join(map(content, values))))
        if kind == "read":
            await volume.read(first * BLOCK_BYTES, into=data)
        elif kind == "write":
            await volume.write(first * BLOCK_BYTES, data=data, fua=False)
        else:
            await volume.trim(first * BLOCK_BYTES, length_bytes=len(data))
        return data


@dataclass
class History(Recorder):
    """One run, by its seed."""

    make_replica: Callable[..., Replica] = Replica
    faults: int = 0
    has_fenced: bool = False

    def run(self) -> History:
        """Run it. Raises AssertionError, with the seed, when something is lost, old, torn, or not there in the end."""
        try:
            run(self._main)
            self.check()
        except (AssertionError, TimeoutError, VolumeError) as error:
            raise AssertionError(f"seed {self.seed}: {error}") from error
        return self

    async def _main(self) -> None:
        self.servers = [
            Server(number, blocks=BLOCKS, random=self.random, make_replica=self.make_replica)
            for number in range(SERVERS)
        ]
        for _ in range(2):
            links, awake = self._links()
            chaos = asyncio.ensure_future(self._chaos(links))
            await self._writer(links, awake)
            chaos.cancel()
            self._heal(links)
            await asyncio.sleep(2.5)  # a lease, in case the writer has not detached
        await self._check_the_end()

    def _links(self) -> tuple[list[Link], asyncio.Event]:
        awake = asyncio.Event()
        awake.set()
        return [Link(server, self.random, writer=awake) for server in self.servers], awake

    def _volume(self, links: list[Link]) -> ReplicatedVolume:
        size_bytes = BLOCKS * BLOCK_BYTES
        return ReplicatedVolume("v", volume=VOLUME, size_bytes=size_bytes, links=links, memory=Memory())

    async def _writer(self, links: list[Link], awake: asyncio.Event) -> None:
        """One writer's turn; another one may come meanwhile."""
        with suppress(VolumeError):  # it could not be attached in this fabric
            async with self._volume(links) as volume, self.users(volume):
                await asyncio.sleep(self.random.uniform(0.3, TURN_S))
                if self.random.random() < 0.5:
                    await self._other_writer(volume, links, awake)

    async def _other_writer(self, first: ReplicatedVolume, links: list[Link], awake: asyncio.Event) -> None:
        """Have the writer be cut off, or stopped, for longer than its lease, and attach another; then let it go on."""
        others, _ = self._links()
        if self.random.random() < 0.3:
            for link in links:
                link.is_cut = True
        else:
            if self.random.random() < 0.5:
                self.reads_only.add(first)
                await asyncio.sleep(0.3)
            awake.clear()
            others[self.random.randrange(SERVERS)].is_cut = True
        with suppress(VolumeError):
            async with self._volume(others) as volume, self.users(volume):
                await asyncio.sleep(0.3)
                self._let_go_on(links, awake)
                await asyncio.sleep(self.random.uniform(0.1, 0.6))
                self.has_fenced = True
        self._let_go_on(links, awake)
        await asyncio.sleep(0.3)

    @staticmethod
    def _let_go_on(links: list[Link], awake: asyncio.Event) -> None:
        for link in links:
            link.heal()
        awake.set()

    async def _chaos(self, links: list[Link]) -> None:
        """Let a server at a time fail, mostly."""
        while True:
            await asyncio.sleep(self.random.expovariate(1 / 0.4))
            at = self.random.randrange(SERVERS)
            server, link = self.servers[at], links[at]
            self.faults += 1
            lasting_s = self.random.choice((0.02, 0.3, 1.0, 5.0))
            match self.random.randrange(6):
                case 0 | 1 as power:
                    server.stop(loses_power=bool(power))
                    asyncio.get_running_loop().call_later(lasting_s, _revive, server)
                case 5:
                    for each in self.servers:
                        each.stop(loses_power=True)
                        asyncio.get_running_loop().call_later(lasting_s, _revive, each)
                case 2:
                    link.is_cut = True
                    asyncio.get_running_loop().call_later(lasting_s, link.heal)
                case 3:
                    server.is_awake.clear()
                    asyncio.get_running_loop().call_later(lasting_s, server.is_awake.set)
                case 4:
                    server.disk.fails_sync = True
                    asyncio.get_running_loop().call_later(lasting_s, _mend, server)

    def _heal(self, links: list[Link]) -> None:
        for server, link in zip(self.servers, links, strict=True):
            link.is_cut = False
            server.is_awake.set()
            _mend(server)

    async def _check_the_end(self) -> None:
        """All is there: read by a writer of whole servers, which makes replicas alike."""
        links, _ = self._links()
        async with self._volume(links) as volume:
            await self.read_all(volume)
            async with asyncio.timeout(10):
                await volume.wait_whole()
        self._check_alike()

    def _check_alike(self) -> None:
        replicas = {_all_of(server) for server in self.servers}
        assert len(replicas) == 1, "replicas differ"


def _all_of(server: Server) -> bytes:
    assert server.replica is not None
    into = memoryview(bytearray(BLOCKS * BLOCK_BYTES))
    server.replica.store.read(0, into=into)
    return bytes(into)


def _revive(server: Server) -> None:
    if server.replica is None:
        with suppress(StoreError):  # its disk still fails
            server.start()


def _mend(server: Server) -> None:
    """Put in another disk, and start it again, if it has failed or is down."""
    server.disk.fails_sync = False
    if server.replica is not None and server.replica.store.failure is not None:
        server.stop(loses_power=False)
    _revive(server)
