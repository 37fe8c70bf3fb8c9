"""Files with holes over loopback: neither read nor sent, and holes at the receiver; and resumption behind gaps."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srd.file_transfer.chunk_file import BLOCK_BYTES, ChunkFile
from srd.file_transfer.errors import TransferError
from srd.file_transfer.outgoing import OutgoingFile
from srd.file_transfer.protocol import CHUNK_BYTES, MAX_RANGES
from srd.file_transfer.sending import FileSender, SentFile
from srd.file_transfer.sessions import TransferSessions
from srd.file_transfer.source_file import SourceFile
from tests.failing import refusing
from tests.patience import until
from tests.srd.file_transfer.ends import digest_of, ends, file_of, names, session
from tests.srd.file_transfer.test_chunk_file import chunk, chunk_file, digest, whole_digest
from tests.srd.file_transfer.test_pipes import interrupted, send, standard_output
from tests.srd.loopback import content

MIB = CHUNK_BYTES


def with_holes(directory: Path, size: int, *pieces: tuple[int, int]) -> Path:
    """Make a file with random bytes at (offset, length), and holes elsewhere."""
    path = directory / "holes.bin"
    with path.open("wb") as file:
        file.truncate(size)
        for number, (at, length) in enumerate(pieces):
            file.seek(at)
            file.write(content(length, seed=number))
    return path


def stored_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


# -- the sender -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "pieces", "holes"),
    [
        (5 * MIB, [], [(0, 5)]),
        (5 * MIB + 1, [(2 * MIB, MIB)], [(0, 2), (3, 3)]),
        (5 * MIB, [(2 * MIB + 9, MIB)], [(0, 2), (4, 1)]),
        (5 * MIB, [(0, 1), (5 * MIB - 1, 1)], [(1, 3)]),
        (2 * MIB, [(MIB - 1, 2)], []),
        (0, [], []),
    ],
)
def test_source__finds_holes(
    tmp_path: Path, size: int, pieces: list[tuple[int, int]], holes: list[tuple[int, int]]
) -> None:
    path = with_holes(tmp_path, size, *pieces)
    with closing(SourceFile(path)) as source:
        assert source.holes == holes
        assert source.data_bytes == (stored_bytes(path) if holes else None)


def test_source__a_file_system_that_knows_no_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "lseek", refusing(errno.EINVAL))
    with closing(SourceFile(with_holes(tmp_path, 5 * MIB))) as source:
        assert (source.holes, source.data_bytes) == ([], None)


# -- both -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "pieces"),
    [
        (200 * MIB, [(100 * MIB + 5, 10_000)]),
        (9 * MIB + 7, [(0, 100), (4 * MIB, 2 * MIB)]),
        (3 * MIB, []),
        (100, []),
    ],
)
async def test_send__holes_are_not_sent_and_are_holes(
    tmp_path: Path, output: Path, size: int, pieces: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, posted = with_holes(tmp_path, size, *pieces), list[int]()
    post = FileSender._post

    def watched(self: FileSender, offered: Any, each: Any) -> None:
        posted.append(each.index)
        post(self, offered, each)

    monkeypatch.setattr(FileSender, "_post", watched)
    async with ends(output) as (sender, record):
        sent = await sender.send(path)
        assert sent == SentFile("holes.bin", size, "blake3", digest_of(path.read_bytes()))
        assert [(received.size, received.digest) for received in record.received] == [(size, sent.digest)]
    there = output / "holes.bin"
    assert there.read_bytes() == path.read_bytes()
    assert posted == sorted({index for at, length in pieces for index in range(at // MIB, -(-(at + length) // MIB))})
    assert stored_bytes(there) <= stored_bytes(path) + BLOCK_BYTES
    assert names(output) == ["holes.bin"]


async def test_send__holes_are_zeros_on_standard_output(tmp_path: Path) -> None:
    path = with_holes(tmp_path, 5 * MIB, (2 * MIB, 5))
    with standard_output() as (sessions, reader):
        async with session(sessions) as (sender, _):
            await sender.send(path)
    assert reader.all() == path.read_bytes()


@pytest.mark.parametrize("has_holes", [False, True])
async def test_send__the_next_attempt_sends_what_is_missing_between_verified_chunks(
    tmp_path: Path, sessions: TransferSessions, output: Path, monkeypatch: pytest.MonkeyPatch, *, has_holes: bool
) -> None:
    """Chunk 1 is lost with the first attempt; the others are not sent again."""
    path = with_holes(tmp_path, 9 * MIB, (0, 4 * MIB), (7 * MIB, MIB)) if has_holes else file_of(tmp_path, 6 * MIB)
    file = OutgoingFile(path, path.name, transfer="1" * 32)
    posted, post = list[int](), FileSender._post

    def without_1(self: FileSender, offered: Any, each: Any) -> None:
        posted.append(each.index)
        if each.index == 1 and posted.count(1) == 1:
            self._ahead.give_back(each.slot)
        else:
            post(self, offered, each)

    monkeypatch.setattr(FileSender, "_post", without_1)
    async with session(sessions, retry_for_s=60) as (sender, _):
        sending = asyncio.ensure_future(send(sender, file))
        data = (4 if has_holes else 5) * MIB
        await until(lambda: file.acked_bytes == data)
        await interrupted(sender, sending)
    posted.clear()
    posted.append(1)
    async with session(sessions, retry_for_s=60) as (sender, record):
        (sent,) = await send(sender, file)
        assert sent == SentFile(path.name, path.stat().st_size, "blake3", digest_of(path.read_bytes()))
        assert [resumed for _, resumed in record.resumed] == [data]
    assert posted == [1, 1]
    assert (output / path.name).read_bytes() == path.read_bytes()
    file.close()


# -- the receiver's file --------------------------------------------------------------------------------------------


@given(
    data=st.data(),
    kinds=st.lists(st.sampled_from(["data", "hole", "half"]), min_size=2, max_size=9),
    last=st.integers(1, 1024),
)
@settings(max_examples=60)
def test_leave_out__in_any_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kinds: list[str], last: int
) -> None:
    """Complete exactly when the last of holes, chunks and digests has come; a chunk may be partly zeros."""
    size = (len(kinds) - 1) * 1024 + last
    payload = bytearray(content(size, seed=7))
    for index, kind in enumerate(kinds):
        if kind != "data":
            length = 1024 if kind == "hole" else 512
            payload[index * 1024 : index * 1024 + length] = bytes(len(payload[index * 1024 : index * 1024 + length]))
    steps = [
        (index, step)
        for index, kind in enumerate(kinds)
        for step in (["hole"] if kind == "hole" else ["put", "digest"])
    ]
    directory = tmp_path_factory.mktemp("sparse")
    with chunk_file(directory, size, data_bytes=0) as file:
        file.allocate()
        for index, step in data.draw(st.permutations(steps)):
            assert not file.complete
            if step == "hole":
                file.leave_out(index, 1)
            elif step == "put":
                file.put(index, chunk(payload, index))
            else:
                file.announce(index, [digest(bytes(payload), index)])
        assert file.complete
        assert file.hexdigest() == whole_digest(payload)
    assert (directory / "part").read_bytes() == payload


@pytest.mark.parametrize(("first", "count"), [(0, 1), (1, 2), (2, 1), (3, 1), (4, 1), (0, 9), (4, 5)])
def test_leave_out__what_came_before_or_is_not_of_the_file_bad_flow(tmp_path: Path, first: int, count: int) -> None:
    payload = content(8 * 1024, seed=3)
    with chunk_file(tmp_path, len(payload), data_bytes=0) as file:
        file.put(0, chunk(payload, 0))
        file.leave_out(2, 2)
        file.put(4, chunk(payload, 4))
        with pytest.raises(TransferError, match=r"of which chunks came before|is not part of the file"):
            file.leave_out(first, count)
        with pytest.raises(TransferError, match="came twice"):
            file.put(2, chunk(payload, 2))


def test_leave_out__of_a_file_without_holes_bad_flow(tmp_path: Path) -> None:
    with chunk_file(tmp_path, 8 * 1024) as file, pytest.raises(TransferError, match="is not part of the file"):
        file.leave_out(0, 1)


@pytest.mark.parametrize("can_punch", [True, False])
def test_leave_out__what_an_earlier_attempt_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, can_punch: bool
) -> None:
    """A sender that names a hole where it has sent data before: the file is what its hash says."""
    payload = content(4 * 1024, seed=3)
    (tmp_path / "part").write_bytes(payload)
    (tmp_path / "journal").write_bytes(b"")
    if not can_punch:
        monkeypatch.setattr("srd.file_transfer.chunk_file._PUNCH_HOLE", 1 << 20)
    journal = os.open(tmp_path / "journal", os.O_RDWR)
    with chunk_file(tmp_path, len(payload), data_bytes=0) as file:
        os.pwrite(file._fd, payload, 0)
        file.resume(file._fd, journal=journal, notes_at=0, is_new=False)
        file.allocate()
        file.leave_out(0, 3)
        zeros = bytes(1024)
        file.put(3, [memoryview(zeros)])
        file.announce(3, [digest(bytes(4 * 1024), 3)])
        assert file.complete
        assert file.hexdigest() == whole_digest(bytes(4 * 1024))
    os.close(journal)
    assert (tmp_path / "part").read_bytes() == bytes(4 * 1024)


def test_resume__a_limited_number_of_ranges(tmp_path: Path) -> None:
    payload = content((2 * MAX_RANGES + 9) * 1024, seed=3)
    journal = os.open(tmp_path / "journal", os.O_RDWR | os.O_CREAT)
    with chunk_file(tmp_path, len(payload)) as file:
        file.resume(file._fd, journal=journal, notes_at=5, is_new=True)
        for index in range(1, 2 * MAX_RANGES + 9, 2):
            file.put(index, chunk(payload, index))
            file.announce(index, [digest(payload, index)])
        again = ChunkFile(file._offer, stop=file._stop)
        assert again.resume(file._fd, journal=journal, notes_at=5, is_new=False) == 0
        assert again.beyond == [(index, 1) for index in range(1, 2 * MAX_RANGES, 2)]
        for index in sorted(set(range(2 * MAX_RANGES + 9)) - {first for first, _ in again.beyond}):
            again.put(index, chunk(payload, index))
            again.announce(index, [digest(payload, index)])
        assert again.complete
        assert again.hexdigest() == whole_digest(payload)
    os.close(journal)
