"""srd.file_transfer.pipe_source: read once to its end, kept until taken, and stopped while it waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from blake3 import blake3

from srd.file_transfer.digests import chunk_digest
from srd.file_transfer.errors import TransferError
from srd.file_transfer.pipe_source import PipeSource
from srd.file_transfer.protocol import CHUNK_BYTES
from tests.patience import PATIENCE_S

MEMORY = memoryview(bytearray(CHUNK_BYTES))


@contextmanager
def piped() -> Iterator[tuple[PipeSource, int]]:
    """Give a source, and the descriptor of its writer, which the caller closes."""
    reading, writing = os.pipe()
    try:
        yield PipeSource(reading, file_hash="blake3"), writing
    finally:
        os.close(reading)


def read(source: PipeSource, index: int) -> bytes | None:
    found = source.read(index, into=MEMORY)
    if found is None:
        return None
    length, digest = found
    assert chunk_digest([MEMORY[:length]]) == digest
    return bytes(MEMORY[:length])


def test_read__again_what_is_not_taken() -> None:
    with piped() as (source, writing):
        for index in range(3):
            os.write(writing, b"%d" % index)
            assert read(source, index) == b"%d" % index
        source.take(1)
        source.take(0)  # an answer that was overtaken
        assert [read(source, index) for index in (1, 2)] == [b"1", b"2"]
        source.check_from(1)
        source.check_from(3)
        for index in (0, 4):
            with pytest.raises(TransferError, match="standard input cannot be read again"):
                source.check_from(index)
        os.close(writing)
        assert source.digest.hexdigest() == blake3(b"012").hexdigest()


def test_stop__while_it_waits_and_nothing_is_lost() -> None:
    with piped() as (source, writing):
        found: list[bytes | None] = []
        reader = threading.Thread(target=lambda: found.append(read(source, 0)))
        reader.start()
        source.stop()
        reader.join(PATIENCE_S)
        assert found == [None]
        os.write(writing, b"late")
        assert read(source, 0) is None
        source.begin()
        assert read(source, 0) == b"late"
        os.close(writing)


def test_read__a_regular_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with path.open("rb") as file:
        source = PipeSource(file.fileno(), file_hash="sha256")
        assert read(source, 0) == b"abc"
        assert source.chunks == 1


def test_read__a_directory_bad_flow(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(TransferError, match=r"^-: cannot be read: Is a directory$"):
            PipeSource(fd, file_hash="blake3").read(0, into=MEMORY)
    finally:
        os.close(fd)
