"""srd.file_transfer.read_ahead: chunks in order, never more than there are slots, and every slot comes back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from srd.file_transfer.digests import chunk_digest
from srd.file_transfer.errors import TransferError
from srd.file_transfer.protocol import CHUNK_BYTES
from srd.file_transfer.read_ahead import BATCH, BATCHES, SLOTS, ReadAhead
from srd.file_transfer.source_file import SourceFile
from srd.file_transfer.worker import start_worker
from srd.notify import Notify
from tests.failing import failing
from tests.patience import PATIENCE_S
from tests.srd.file_transfer.ends import file_of


def nothing() -> None:
    """No reason not to wait."""


@asynccontextmanager
async def reading(path: Path, *, is_scratch: bool = False) -> AsyncIterator[tuple[ReadAhead, SourceFile]]:
    worker = start_worker("srd-test")
    ahead = ReadAhead(worker, is_scratch=is_scratch, changed=Notify())
    try:
        with closing(SourceFile(path)) as source:
            async with asyncio.timeout(PATIENCE_S):
                yield ahead, source
                await ahead.stop()
        assert sorted(ahead._free) == list(range(SLOTS))
    finally:
        worker.shutdown()
        ahead.close()


@pytest.mark.parametrize("is_scratch", [False, True])
@pytest.mark.parametrize("first", [0, 3])
async def test_next__all_chunks_in_order(tmp_path: Path, first: int, *, is_scratch: bool) -> None:
    path = file_of(tmp_path, 9 * CHUNK_BYTES + 5)
    payload = memoryview(path.read_bytes())
    async with reading(path, is_scratch=is_scratch) as (ahead, source):
        source.hashed_chunks = first  # as if an earlier attempt had read them
        ahead.begin(source, first=first)
        indices: list[int] = []
        while chunks := await ahead.next(nothing):
            for chunk in chunks:
                expected = payload[chunk.index * CHUNK_BYTES :][:CHUNK_BYTES]
                assert chunk.digest == chunk_digest([expected])
                if not is_scratch:
                    with ahead.region.view(chunk.slot * CHUNK_BYTES, length=len(expected)) as view:
                        assert view == expected
                indices.append(chunk.index)
                ahead.give_back(chunk.slot)
        assert indices == list(range(first, 10))


async def test_next__waits_for_slots(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.touch()
    os.truncate(path, (SLOTS + BATCH) * CHUNK_BYTES)
    async with reading(path) as (ahead, source):
        ahead.begin(source, first=0)
        taken = [chunk.slot for _ in range(SLOTS // BATCH) for chunk in await ahead.next(nothing)]
        assert sorted(taken) == list(range(SLOTS))
        waiting = asyncio.ensure_future(ahead.next(nothing))
        for slot in taken[:BATCH]:
            assert not waiting.done()
            ahead.give_back(slot)
            await asyncio.sleep(0)
        assert sorted(chunk.slot for chunk in await waiting) == sorted(taken[:BATCH])
        for slot in taken:
            ahead.give_back(slot)


async def test_next__what_check_raises_ends_the_wait(tmp_path: Path) -> None:
    async with reading(file_of(tmp_path, CHUNK_BYTES)) as (ahead, source):
        ahead.begin(source, first=0)
        with pytest.raises(TransferError, match="a chunk failed"):
            await ahead.next(failing(TransferError("a chunk failed")))


async def test_next__a_file_that_shrinks_gives_its_slots_back_bad_flow(tmp_path: Path) -> None:
    path = file_of(tmp_path, 3 * CHUNK_BYTES)
    async with reading(path) as (ahead, source):
        os.truncate(path, CHUNK_BYTES)
        ahead.begin(source, first=0)
        with pytest.raises(TransferError, match="became shorter"):
            await ahead.next(nothing)


async def test_stop__in_the_middle(tmp_path: Path) -> None:
    async with reading(file_of(tmp_path, 3 * BATCH * BATCHES * CHUNK_BYTES)) as (ahead, source):
        ahead.begin(source, first=0)
        for chunk in await ahead.next(nothing):
            ahead.give_back(chunk.slot)
        await ahead.stop()
        assert await ahead.next(nothing) == []
