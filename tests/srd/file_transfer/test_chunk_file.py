"""srd.file_transfer.chunk_file: both digests see damage, in any order of chunks; the disk is asked early."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from srd.file_transfer import chunk_file as module
from srd.file_transfer.chunk_file import ChunkFile
from srd.file_transfer.digests import FileDigest, chunk_digest
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.protocol import Offer
from tests.srd.loopback import content

CHUNK_BYTES = 1024


def chunk(payload: bytes | bytearray, index: int) -> list[memoryview]:
    view = memoryview(payload)[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
    return [view[:7], view[7:]]


def digest(payload: bytes, index: int) -> bytes:
    return chunk_digest(chunk(payload, index))


def file_digest(payload: bytes | bytearray, *, name: str = "blake3") -> str:
    running = FileDigest(name)
    running.update(memoryview(payload))
    return running.hexdigest()


@contextmanager
def chunk_file(
    directory: Path, size: int, *, file_hash: str = "blake3", data_bytes: int | None = None
) -> Iterator[ChunkFile]:
    offer = Offer("a.bin", size, CHUNK_BYTES, "0" * 32, file_hash=file_hash, data_bytes=data_bytes)
    file = ChunkFile(offer, stop=threading.Event())
    fd = os.open(directory / "part", os.O_RDWR | os.O_CREAT)
    try:
        file.resume(fd, journal=-1, notes_at=0, is_new=True)
        yield file
    finally:
        os.close(fd)


@pytest.mark.parametrize("is_first", [True, False], ids=["chunk first", "digest first"])
def test_sabotage__a_flipped_byte_is_seen_by_the_chunk_digest_bad_flow(tmp_path: Path, *, is_first: bool) -> None:
    payload, damaged = content(4 * CHUNK_BYTES, seed=3), bytearray(content(4 * CHUNK_BYTES, seed=3))
    damaged[2 * CHUNK_BYTES + 500] ^= 1
    with chunk_file(tmp_path, len(payload)) as file:
        steps = [
            partial(file.put, 2, chunk(damaged, 2)),
            partial(file.announce, 0, [digest(payload, index) for index in range(4)]),
        ]
        first, last = steps if is_first else reversed(steps)
        first()
        with pytest.raises(TransferInterruptedError, match=r"^a.bin: chunk 2 arrived damaged: its digests differ$"):
            last()


@pytest.mark.parametrize("file_hash", ["blake3", "sha256"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0)], ids=str)
def test_sabotage__without_chunk_digests_the_file_digest_sees_a_flipped_byte_bad_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_hash: str, order: tuple[int, ...]
) -> None:
    monkeypatch.setattr(module, "chunk_digest", lambda _: bytes(16))
    payload = content(4 * CHUNK_BYTES, seed=3)
    damaged = bytearray(payload)
    damaged[2 * CHUNK_BYTES + 500] ^= 1
    with chunk_file(tmp_path, len(payload), file_hash=file_hash) as file:
        for index in order:
            file.announce(index, [bytes(16)])
            file.put(index, chunk(damaged, index))
        assert file.complete
        assert file.hexdigest() == file_digest(damaged, name=file_hash) != file_digest(payload, name=file_hash)


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (4, 1), (3, 2), (0, 5), (1 << 62, 1)])
def test_announce__outside_the_file_bad_flow(tmp_path: Path, first: int, count: int) -> None:
    with chunk_file(tmp_path, 4 * CHUNK_BYTES) as file, pytest.raises(TransferError, match=r"are not of the file$"):
        file.announce(first, [bytes(16)] * count)


def test_announce__twice_bad_flow(tmp_path: Path) -> None:
    with chunk_file(tmp_path, 4 * CHUNK_BYTES) as file:
        file.announce(1, [bytes(16)])
        with pytest.raises(TransferError, match=r"^a.bin: the digest of chunk 1 came twice$"):
            file.announce(0, [bytes(16), bytes(16)])


def test_announce__a_sender_that_never_sends_digests_does_not_grow_memory_bad_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNCOMPARED", 3)
    payload = content(5 * CHUNK_BYTES, seed=3)
    with chunk_file(tmp_path, len(payload)) as file:
        for index in range(3):
            file.put(index, chunk(payload, index))
        with pytest.raises(TransferError, match=r"chunks and their digests do not come together$"):
            file.put(3, chunk(payload, 3))


def test_write_back__of_what_was_written_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(module, "WRITE_BACK_BYTES", 2 * CHUNK_BYTES)
    monkeypatch.setattr(module._libc, "sync_file_range", lambda _fd, at, length, _flags: asked.append((at, length)))
    payload = content(7 * CHUNK_BYTES, seed=3)
    with chunk_file(tmp_path, len(payload)) as file:
        for index in (1, 2, 0, 3, 4, 6, 5):
            file.put(index, chunk(payload, index))
    assert asked == [(0, 3 * CHUNK_BYTES), (3 * CHUNK_BYTES, 2 * CHUNK_BYTES), (5 * CHUNK_BYTES, 2 * CHUNK_BYTES)]


def test_allocate__the_blocks_in_pieces_ahead_of_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ALLOCATE_BYTES", 16 * CHUNK_BYTES)
    payload = content(60 * CHUNK_BYTES, seed=3)
    with chunk_file(tmp_path, len(payload)) as file:
        file.allocate()
        for index, pieces in ((None, 1), (3, 1), (15, 1), (16, 2), (47, 3), (32, 3), (59, 4)):
            if index is not None:
                file.put(index, chunk(payload, index))
            status = (tmp_path / "part").stat()
            assert status.st_size == len(payload)
            assert status.st_blocks * 512 == min(pieces * 16, 60) * CHUNK_BYTES, index


@pytest.mark.parametrize(
    ("code", "is_raised"),
    [(errno.EOPNOTSUPP, False), (errno.ENOSYS, False), (errno.ENOSPC, True), (errno.EDQUOT, True)],
)
def test_allocate__where_the_file_system_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, *, is_raised: bool
) -> None:
    def fail(*_: int) -> int:
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr(module._libc, "fallocate", fail)
    payload = content(2 * CHUNK_BYTES, seed=3)
    with chunk_file(tmp_path, len(payload)) as file:
        if is_raised:
            with pytest.raises(OSError, match=os.strerror(code)):
                file.allocate()
            return
        file.allocate()
        for index in range(2):
            file.put(index, chunk(payload, index))
        assert (tmp_path / "part").read_bytes() == payload
