"""srd.file_transfer.leftovers: locks of partial files, and how long they are kept."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from srd.file_transfer.errors import TransferInterruptedError
from srd.file_transfer.leftovers import (
    GRACE_S,
    Leftover,
    expire,
    head_of,
    journal_path,
    leftovers,
    open_locked,
    part_path,
)
from srd.file_transfer.protocol import MAX_RETRY_S, Offer
from tests.failing import refusing
from tests.srd.file_transfer.ends import names

ID = "0123456789abcdef" * 2


def left(directory: Path, *, retry_for_s: int = 60, age_s: float = 0.0, transfer: str = ID) -> Path:
    """Leave a partial file that was last written `age_s` ago."""
    part = part_path(directory, transfer)
    part.write_bytes(b"x")
    offer = Offer("a.bin", 3, 1024, transfer, retry_for_s=retry_for_s)
    journal_path(directory, transfer).write_bytes(head_of(offer) + bytes(32))
    written_at = time.time() - age_s
    os.utime(part, (written_at, written_at))
    return part


def test_leftovers__with_name_and_time_left(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert leftovers(tmp_path) == []
    left(tmp_path, retry_for_s=60, age_s=20)
    (leftover,) = leftovers(tmp_path)
    assert (leftover.transfer, leftover.name) == (ID, "a.bin")
    assert 45 < leftover.expires_in_s <= 40 + GRACE_S


def test_expire__not_before_its_time(tmp_path: Path) -> None:
    left(tmp_path, retry_for_s=60, age_s=50)
    assert expire(tmp_path, ID) is None
    assert len(names(tmp_path)) == 2
    left(tmp_path, retry_for_s=60, age_s=61 + GRACE_S)
    assert expire(tmp_path, ID) == Leftover(ID, "a.bin", 0.0)
    assert names(tmp_path) == []
    assert expire(tmp_path, ID) is None


def test_expire__a_locked_file_stays_at_any_age(tmp_path: Path) -> None:
    part = left(tmp_path, retry_for_s=0, age_s=1e6)
    fd = open_locked(part)
    assert leftovers(tmp_path) == []
    assert expire(tmp_path, ID) is None
    os.close(fd)  # as the end of its process does
    assert expire(tmp_path, ID) is not None
    assert names(tmp_path) == []


@pytest.mark.parametrize("head", [b"", b"{", b"[]\n", b"null\n", b'{"name": "a", "retry_for_s": "x"}\n', b"[" * 9000])
def test_expire__an_invalid_journal_keeps_nothing(tmp_path: Path, head: bytes) -> None:
    part = left(tmp_path, age_s=1 + GRACE_S)
    journal_path(tmp_path, ID).write_bytes(head)
    assert expire(tmp_path, ID) == Leftover(ID, part.name, 0.0)
    assert names(tmp_path) == []


def test_expire__removes_a_journal_without_its_part(tmp_path: Path) -> None:
    left(tmp_path).unlink()
    assert [leftover.transfer for leftover in leftovers(tmp_path)] == [ID]
    assert expire(tmp_path, ID) is not None
    assert names(tmp_path) == []


def test_leftovers__time_is_limited(tmp_path: Path) -> None:
    left(tmp_path, retry_for_s=1 << 60, age_s=-1e9)
    (leftover,) = leftovers(tmp_path)
    assert leftover.expires_in_s == MAX_RETRY_S + GRACE_S


def test_open_locked__one_at_a_time_bad_flow(tmp_path: Path) -> None:
    part = part_path(tmp_path, ID)
    fd = open_locked(part)
    with pytest.raises(TransferInterruptedError, match="another process is receiving this transfer"):
        open_locked(part)
    os.close(fd)
    os.close(open_locked(part))


def test_open_locked__follows_no_link_bad_flow(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"untouched")
    part_path(tmp_path, ID).symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="Too many levels"):
        open_locked(part_path(tmp_path, ID))


def test_open_locked__a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srd.file_transfer.leftovers.fcntl.flock", refusing(errno.EOPNOTSUPP))
    os.close(open_locked(part_path(tmp_path, ID)))
