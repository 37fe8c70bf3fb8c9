"""srd.file_transfer.source_file: what can be sent, and sizes that cannot be believed."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from srd.file_transfer import source_file
from srd.file_transfer.errors import TransferError
from srd.file_transfer.protocol import CHUNK_BYTES, CONTROL_MESSAGE
from srd.file_transfer.source_file import SourceFile


def sent(source: SourceFile) -> bytes:
    """What its chunks are."""
    chunk, found = bytearray(CHUNK_BYTES), b""
    for index in range(source.chunks):
        length, _ = source.read(index, into=memoryview(chunk))
        found += chunk[:length]
    return found


def test_source_file__a_fifo_is_no_file_and_does_not_block_bad_flow(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(TransferError, match=r"fifo: cannot be read: Is no regular file$"):
        SourceFile(tmp_path / "fifo")


def test_source_file__more_chunks_than_there_are_numbers_bad_flow() -> None:
    """The file fails alone; no attempt could offer it."""
    fd = os.memfd_create("large")
    try:
        os.truncate(fd, CHUNK_BYTES * CONTROL_MESSAGE)
        with pytest.raises(TransferError, match=r"has 2251799813685248 bytes, more than can be sent; split it$"):
            SourceFile(Path(f"/proc/self/fd/{fd}"))
    finally:
        os.close(fd)


@pytest.mark.parametrize("name", ["/proc/version", "/proc/self/mounts", "/sys/class/net/lo/mtu"])
def test_source_file__what_can_be_read_counts_and_not_the_size(name: str) -> None:
    """Those of /proc say 0, those of /sys a page."""
    path = Path(name)
    with closing(SourceFile(path)) as source:
        assert source.size == len(path.read_bytes()) != path.stat().st_size
        assert sent(source) == path.read_bytes()


def test_source_file__what_does_not_end_is_not_copied_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_file, "MAX_COPY_BYTES", 10)
    with pytest.raises(
        TransferError, match=r"has no size before it is read; send it as a pipe: cat FILE \| srd send -$"
    ):
        SourceFile(Path("/proc/version"))


def test_source_file__what_was_changed_right_before_it_was_opened_may_have_the_same_times_after_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"content")
    changed_ns = path.stat().st_ctime_ns
    for age_ns, is_suspect in ((0, True), (10_000_000, True), (1_000_000_000, False)):
        monkeypatch.setattr(time, "time_ns", lambda age_ns=age_ns: changed_ns + age_ns)
        with closing(SourceFile(path)) as source:
            assert sent(source) == b"content"
            assert source.is_suspect is is_suspect


def test_source_file__pieces_that_are_shorter_than_what_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of FUSE and 9p file systems."""
    path, read = tmp_path / "a.bin", os.preadv
    path.write_bytes(os.urandom(CHUNK_BYTES + 10_000))
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: read(fd, [views[0][:100_000]], at))
    with closing(SourceFile(path)) as source:
        assert sent(source) == path.read_bytes()
