"""Histories of volumes on servers that are processes: killed, stopped, cut off, on disks that lose and refuse.

A run has eight volumes on three servers, whose faults they share; each block of each volume is checked for
linearizability. What a server has not synchronised is lost when it is killed (`faulty_disk`). A link that is cut drops
what is sent to the server. Two writers follow each other, and a third one reads all at the end.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from pathlib import Path
from random import Random

import pytest

from nitro_emu.ebs import remote
from nitro_emu.ebs.catalog import Volume, new_id
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.replicas import ReplicatedVolume
from tests.nitro_emu.ebs.histories import BLOCKS, SERVERS, Recorder
from tests.nitro_emu.ebs.server_processes import ServerProcess, security, volume_on
from tests.patience import PATIENCE_S, until

VOLUMES = 8
TURNS = 2
FAULTS = 4
"""Of a writer's turn."""
LAST_S = (0.1, 0.5, 1.5)
"""How long a fault lasts: longer than what a majority waits for, and 1.5 s than what a lease has left."""
DONE = 20 * VOLUMES
"""Requests: a turn goes on until there are as many."""
END_S = float(PATIENCE_S)
SIZE_BYTES = BLOCKS * BLOCK_BYTES


pytestmark = [pytest.mark.volume, pytest.mark.long]


class Run:
    """One run, by its seed."""

    def __init__(self, seed: int, servers: list[ServerProcess], *, lies: bool, faults_of_a_turn: int) -> None:
        self.random = Random(seed)
        self.servers = servers
        self.lies = lies
        self.faults_of_a_turn = faults_of_a_turn
        self.histories = {new_id(): Recorder(1000 * seed + number) for number in range(VOLUMES)}
        self.faults = list[str]()

    async def main(self) -> None:
        for volume in self.histories:
            await remote.create(self._on_servers(volume), security=security())
        if self.lies:
            for server in self.servers:
                server.lie()
        for turn in range(TURNS):
            over = asyncio.Event()
            writers = [asyncio.ensure_future(self._writer(volume, over)) for volume in self.histories]
            for _ in range(self.faults_of_a_turn):
                await self._fault()
            if turn == 0:
                await self._power_loss()
            wanted = (turn + 1) * DONE // TURNS
            await until(lambda: self.done > wanted)  # noqa: B023 - it is waited for here
            over.set()
            await asyncio.gather(*writers)
        await asyncio.gather(*map(self._end, self.histories))

    def _attached(self, volume: int) -> AbstractAsyncContextManager[ReplicatedVolume]:
        return remote.attached(self._on_servers(volume), security=security())

    def _on_servers(self, volume: int) -> Volume:
        return volume_on(self.servers, number=volume, size_bytes=SIZE_BYTES)

    async def _writer(self, volume: int, over: asyncio.Event) -> None:
        """One writer's turn; in this fabric it may take more than one try."""
        history = self.histories[volume]
        while not over.is_set():
            with suppress(VolumeError):
                async with self._attached(volume) as device, history.users(device):
                    await over.wait()

    async def _fault(self) -> None:
        """Let one server fail for a while."""
        server, last_s = self.random.choice(self.servers), self.random.choice(LAST_S)
        kind = self.random.choice(("kill", "pause", "cut", "fsync"))
        self.faults.append(kind)
        await asyncio.sleep(self.random.uniform(0.1, 0.4))
        if kind == "pause":
            server.pause()
        elif kind == "cut":
            server.cut()
        elif kind == "fsync":
            server.fail_sync()
        else:
            server.kill()
        await asyncio.sleep(last_s)
        if kind == "pause":
            server.go_on()
        elif kind == "cut":
            server.heal()
        else:
            if kind == "fsync":
                server.kill()
                server.mend()
            await self._start(server)

    async def _power_loss(self) -> None:
        """End all servers at once."""
        self.faults.append("power")
        for server in self.servers:
            server.kill()
        await asyncio.gather(*map(self._start, self.servers))

    @staticmethod
    async def _start(server: ServerProcess) -> None:
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(server.ready)

    @property
    def done(self) -> int:
        """Requests of all histories."""
        return sum(history.done for history in self.histories.values())

    async def _end(self, volume: int) -> None:
        """Read all, and have all be made whole; on a busy computer it may take more than one try to attach."""
        async with asyncio.timeout(END_S):
            while True:
                is_attached = False
                try:
                    async with self._attached(volume) as device:
                        is_attached = True
                        await self.histories[volume].read_all(device)
                        await device.wait_whole()
                        return
                except VolumeError:
                    if is_attached or self.lies:
                        raise


def run(directory: Path, seed: int, *, lies: bool = False, acks_early: bool = False) -> Run:
    """Run it. Raises AssertionError, with the seed, when something is lost, old, torn, or not there in the end."""
    logging.getLogger("nitro_emu.volume").setLevel(logging.ERROR)  # what fails is played
    with ExitStack() as stack:
        servers = []
        for number in range(SERVERS):
            directory_of_one = directory / str(number)
            servers.append(ServerProcess(directory_of_one, seed=seed * SERVERS + number, acks_early=acks_early))
            stack.callback(servers[-1].kill)
        for server in servers:
            server.ready()
        made = Run(seed, servers, lies=lies, faults_of_a_turn=1 if acks_early else FAULTS)
        try:
            asyncio.run(made.main())
            for history in made.histories.values():
                history.check()
        except (AssertionError, TimeoutError, VolumeError) as error:
            raise AssertionError(f"seed {seed}, faults {made.faults}: {error!r}") from error
    return made


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_histories_of_processes_are_linearizable(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    made = run(tmp_path, seed)
    with capsys.disabled():
        print(f"\nseed {seed}: {VOLUMES} histories, {made.done} requests, faults {', '.join(made.faults)}")
    assert len(made.faults) == TURNS * FAULTS + 1


def test_a_disk_that_lies_is_found(tmp_path: Path) -> None:
    # an old block is read, or, if what begins a log is lost, too, the servers refuse the volume
    with pytest.raises(AssertionError, match=r"seed 1, faults .*(block \d|cannot be attached: . of 3 servers answer)"):
        run(tmp_path, 1, lies=True)


def test_a_server_that_acknowledges_too_early_is_found(tmp_path: Path) -> None:
    # log and store of each server are sound, and no server refuses anything: only who reads sees it
    with pytest.raises(AssertionError, match=r"seed 1, faults .*AssertionError.*block \d:"):
        run(tmp_path, 1, acks_early=True)
