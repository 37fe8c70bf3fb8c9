"""srd.file_transfer.partial_file: no name before the last byte is verified, and no leftovers of a failure."""

from __future__ import annotations

import errno
import os
import random
import resource
import secrets
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srd.file_transfer.chunk_file import IOV_MAX
from srd.file_transfer.digests import chunk_digest
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.partial_file import PartialFile
from srd.file_transfer.protocol import Offer
from srd.file_transfer.tree import DirectoryTree
from tests.failing import refusing
from tests.srd.file_transfer.ends import digest_of, names

CHUNK_BYTES = 1024


def content(size: int) -> bytes:
    return random.Random(31).randbytes(size)


def views_of(payload: bytes, *, pieces: int = 1) -> list[memoryview]:
    step = max(-(-len(payload) // pieces), 1)
    return [memoryview(payload)[at : at + step] for at in range(0, len(payload), step)]


def chunk(payload: bytes, index: int) -> list[memoryview]:
    return views_of(payload[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES], pieces=3)


def put(store: PartialFile, payload: bytes, index: int) -> None:
    """Put a chunk, and its digest if there are several."""
    views = chunk(payload, index)
    if len(payload) > CHUNK_BYTES:
        store.announce(index, [chunk_digest(views)])
    store.put(index, views)


def finish(store: PartialFile, *, digest: str) -> str:
    try:
        actual = store.verify(digest=digest)
        store.publish(sync=True)
        store.sync_directory()
    finally:
        store.abort()
    return actual


def offer(size: int, *, name: str = "a.bin", chunk_bytes: int = CHUNK_BYTES, retry_for_s: int = 0) -> Offer:
    """An offer of a transfer of its own."""
    return Offer(name, size, chunk_bytes, secrets.token_hex(16), retry_for_s=retry_for_s)


def opened(directory: Path, what: Offer, *, overwrite: bool = False) -> PartialFile:
    store = PartialFile(DirectoryTree(directory), what, overwrite=overwrite)
    try:
        store.open()
    except TransferError:
        store.abort()
        raise
    return store


def stored(directory: Path, payload: bytes, *, name: str = "a.bin", overwrite: bool = False) -> PartialFile:
    """Put all of a file, and do not finish it."""
    store = opened(directory, offer(len(payload), name=name), overwrite=overwrite)
    for index in range(-(-len(payload) // CHUNK_BYTES)):
        put(store, payload, index)
    return store


# -- success --------------------------------------------------------------------------------------------------------


def test_put__more_pieces_than_one_call_takes(tmp_path: Path) -> None:
    size = 2 * IOV_MAX + 100
    payload = content(size)
    store = opened(tmp_path, offer(size, chunk_bytes=1 << 16))
    store.put(0, views_of(payload, pieces=size))
    finish(store, digest=digest_of(payload))
    assert (tmp_path / "a.bin").read_bytes() == payload


def test_put__partial_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_pwritev, real_pwrite = os.pwritev, os.pwrite

    def few(fd: int, views: list[memoryview], at: int) -> int:
        return real_pwritev(fd, [memoryview(b"".join(views))[:100]], at)

    monkeypatch.setattr(os, "pwritev", few)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_pwrite(fd, data[:77], at))
    payload = content(3 * CHUNK_BYTES - 5)
    finish(stored(tmp_path, payload), digest=digest_of(payload))
    assert (tmp_path / "a.bin").read_bytes() == payload


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "🎉" * 63, "-rf", "a b\nc", "..a"])
def test_names__all_that_the_file_system_accepts(tmp_path: Path, name: str) -> None:
    payload = content(10)
    finish(stored(tmp_path, payload, name=name), digest=digest_of(payload))
    assert names(tmp_path) == [name]


# -- errors ---------------------------------------------------------------------------------------------------------


def test_overwrite__a_directory_is_not_a_file_bad_flow(tmp_path: Path) -> None:
    (tmp_path / "a.bin").mkdir()
    store = stored(tmp_path, b"x", overwrite=True)
    with pytest.raises(TransferError, match=r"^a.bin: cannot be kept at the receiver: Is a directory$"):
        finish(store, digest=digest_of(b"x"))
    assert names(tmp_path) == ["a.bin"]


def test_init__no_directory_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match=r"^a.bin: cannot be created at the receiver: No such file"):
        opened(tmp_path / "gone", offer(3))


# -- disks ----------------------------------------------------------------------------------------------------------


@pytest.mark.root
def test_init__more_than_the_disk_has_is_refused_at_once_bad_flow(tiny: Path) -> None:
    with pytest.raises(TransferError, match=r"^a.bin: needs 2097152 bytes; the receiver has \d+ left$"):
        opened(tiny, offer(2 << 20, chunk_bytes=1 << 16))
    assert names(tiny) == []


@pytest.mark.root
def test_put__a_disk_that_fills_up_bad_flow(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srd.file_transfer.chunk_file._allocate", lambda *_, **__: errno.EOPNOTSUPP)
    size = 900 << 10
    store = opened(tiny, offer(size, chunk_bytes=300 << 10))
    store.put(0, views_of(content(300 << 10)))
    (tiny / "other").write_bytes(bytes(550 << 10))
    with pytest.raises(TransferError, match=r"^a.bin: cannot be written at the receiver: No space left on device$"):
        store.put(1, views_of(content(300 << 10), pieces=50))
    store.abort()
    assert names(tiny) == ["other"]


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_finish__a_disk_that_fails_at_the_end_bad_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = stored(tmp_path, b"one")
    monkeypatch.setattr(os, call, refusing(errno.EIO))
    with pytest.raises(TransferError, match=r"^a.bin: cannot be kept at the receiver: Input/output error$"):
        finish(store, digest=digest_of(b"one"))
    assert names(tmp_path) == []


def test_put__a_disk_that_cannot_be_read_back_bad_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path, offer(2 * CHUNK_BYTES))
    store.put(1, views_of(bytes(CHUNK_BYTES)))
    monkeypatch.setattr(os, "pread", refusing(errno.EIO))
    with pytest.raises(TransferError, match="Input/output error"):
        store.put(0, views_of(bytes(CHUNK_BYTES)))
    store.abort()
    assert names(tmp_path) == []


# -- leftovers ------------------------------------------------------------------------------------------------------


def left(directory: Path, payload: bytes, *indices: int) -> Offer:
    """Leave a file with some of its chunks; return what it was offered as."""
    what = offer(len(payload), retry_for_s=60)
    store = opened(directory, what)
    for index in indices:
        put(store, payload, index)
    store.leave()
    return what


def test_open__chunks_that_changed_are_not_verified(tmp_path: Path) -> None:
    payload = content(3 * CHUNK_BYTES)
    what = left(tmp_path, payload, 0, 1, 2)
    (part,) = tmp_path.glob("*.part")
    with part.open("r+b") as file:
        file.seek(CHUNK_BYTES + 3)
        file.write(b"other")
    second = opened(tmp_path, what)
    assert (second.resumed_chunks, second.resumed_beyond) == (1, [(2, 1)])
    put(second, payload, 1)
    finish(second, digest=digest_of(payload))
    assert (tmp_path / "a.bin").read_bytes() == payload


@pytest.mark.parametrize("changed", [{"name": "b.bin"}, {"size": 3 * CHUNK_BYTES - 1}, {"chunk_bytes": 2048}], ids=str)
def test_open__another_file_of_the_same_transfer_restarts(tmp_path: Path, changed: dict[str, Any]) -> None:
    second = opened(tmp_path, replace(left(tmp_path, content(3 * CHUNK_BYTES), 0), **changed))
    assert second.resumed_chunks == 0
    second.abort()
    assert names(tmp_path) == []


def test_open__reading_back_can_be_stopped(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    store = PartialFile(
        DirectoryTree(tmp_path), left(tmp_path, content(3 * CHUNK_BYTES), 0), overwrite=False, stop=stop
    )
    with pytest.raises(TransferInterruptedError):
        store.open()
    store.leave()
    assert len(names(tmp_path)) == 2


def test_open__too_many_open_files_may_be_retried_bad_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", refusing(errno.EMFILE))
    with pytest.raises(TransferInterruptedError, match="cannot take it now: Too many open files"):
        PartialFile(DirectoryTree(tmp_path), offer(10), overwrite=False).open()


# -- files that cannot be removed -----------------------------------------------------------------------------------


def test_finish__needs_no_further_descriptor(tmp_path: Path) -> None:
    """Another transfer may use the last one."""
    payload = content(3 * CHUNK_BYTES)
    store = stored(tmp_path, payload)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.dup(0)
        finish(store, digest=digest_of(payload))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (tmp_path / "a.bin").read_bytes() == payload


def test_finish__a_verified_file_is_a_success_though_its_part_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stored(tmp_path, b"one")
    monkeypatch.setattr(Path, "unlink", refusing(errno.EPERM))
    assert finish(store, digest=digest_of(b"one")) == digest_of(b"one")
    assert (tmp_path / "a.bin").read_bytes() == b"one"
    assert "cannot be removed" in store.unremoved
