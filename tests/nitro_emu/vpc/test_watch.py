"""nitro_emu.vpc.watch: when a file that people edit is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nitro_emu.errors import VpcError
from nitro_emu.vpc.watch import FileWatch, Status, look, read

OLD: Status = (1, 10, 100, 100)
HALF: Status = (1, 5, 200, 200)
NEW: Status = (1, 11, 201, 201)


def due(watch: FileWatch, *statuses: Status | None) -> list[bool]:
    """Look at each status; read what is due. Return when it was."""
    found = []
    for status in statuses:
        found.append(watch.is_due(status, asked=False))
        if found[-1] and status is not None:
            watch.has_read(status, asked=False)
    return found


def test_file_is_read_once_it_has_settled() -> None:
    watch = FileWatch()
    assert due(watch, OLD, OLD, OLD, OLD) == [False, True, False, False]
    assert due(watch, HALF, NEW, NEW, NEW) == [False, False, True, False]


def test_file_that_goes_on_changing_is_not_read() -> None:
    watch = FileWatch()
    statuses = [(1, size, size, size) for size in range(20)]
    assert not any(due(watch, *statuses))
    assert due(watch, statuses[-1]) == [True]


def test_file_that_comes_back_is_read_again() -> None:
    watch = FileWatch()
    due(watch, OLD, OLD)
    assert due(watch, None, None, OLD, OLD, OLD) == [False, False, False, True, False]


def test_who_asks_gets_it_read_now_and_once_more() -> None:
    watch = FileWatch()
    due(watch, OLD, OLD)
    assert watch.is_due(NEW, asked=True)
    watch.has_read(NEW, asked=True)
    assert due(watch, NEW, NEW) == [True, False]
    assert watch.is_due(None, asked=True)


@pytest.mark.parametrize("edit", ["in place", "by renaming", "back to the old size and time"])
def test_every_edit_changes_the_status(tmp_path: Path, edit: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    before = look(path)
    assert read(path) == (b"old", before)
    times = path.stat()
    if edit == "by renaming":
        (tmp_path / "g").write_bytes(b"new")
        (tmp_path / "g").rename(path)
    else:
        path.write_bytes(b"newer")
    if edit == "back to the old size and time":
        (tmp_path / "g").write_bytes(b"new")
        os.utime(tmp_path / "g", ns=(times.st_atime_ns, times.st_mtime_ns))
        (tmp_path / "g").rename(path)
    assert look(path) != before


def test_file_that_is_not_there(tmp_path: Path) -> None:
    assert look(tmp_path / "f") is None
    with pytest.raises(VpcError, match="f: cannot be read: No such file or directory; name the control plane's"):
        read(tmp_path / "f")


def test_file_that_is_written_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    count = iter(range(9))
    monkeypatch.setattr("nitro_emu.vpc.watch.status_of", lambda _: (1, 1, 1, next(count)))
    with pytest.raises(VpcError, match="is being written; it is read again when that is done"):
        read(path)
