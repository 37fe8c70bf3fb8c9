"""A server and what its clients ask of it in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nitro_emu.ebs.capsule import CapsuleCommand, CapsuleOpcode, CapsuleOutcome
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.server.ledger import Ledger
from nitro_emu.ebs.server.service import ServerConfig, VolumeServer

pytestmark = pytest.mark.sources  # gives a fake to a compiled module


class FullLedger(Ledger):
    """No volume fits into it any more."""

    def create(self, volume: int, *, size_bytes: int, mark: int = 0) -> None:
        raise VolumeError(f"volume {volume:x} of {size_bytes}, {mark}: the disk is full")


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    made = Ledger(":memory:")
    yield made
    made.close()


def server_in(directory: Path, *, ledger: Ledger) -> VolumeServer:
    async def close() -> None:
        """It has no sockets."""

    endpoint: Any = SimpleNamespace(address=("127.0.0.1", 1), close=close)
    return VolumeServer(ServerConfig(directory=directory, host=None, port=0), endpoint=endpoint, ledger=ledger)


def create(server: VolumeServer, *, length: int = BLOCK_BYTES) -> CapsuleOutcome:
    return server._create(CapsuleCommand(opcode=CapsuleOpcode.CREATE, volume=1, length=length)).outcome


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_volumes_that_cannot_be_made_fill_no_log(
    tmp_path: Path, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    server = server_in(tmp_path, ledger=ledger)
    assert create(server) is CapsuleOutcome.OK
    assert create(server) is CapsuleOutcome.OK, "the last try's"
    for _ in range(1000):
        assert create(server, length=2 * BLOCK_BYTES) is CapsuleOutcome.REFUSED
    assert 1 <= len([record for record in caplog.records if "cannot be made" in record.message]) < 200
    await server.close()


async def test_volumes_that_cannot_be_made_keep_no_files_open(tmp_path: Path) -> None:
    ledger = FullLedger(":memory:")
    server = server_in(tmp_path, ledger=ledger)
    before = descriptors()
    for _ in range(5):
        assert create(server) is CapsuleOutcome.FAILED
        await asyncio.sleep(0)
    assert descriptors() == before
    await server.close()
    ledger.close()
