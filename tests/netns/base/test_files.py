"""netns.base.files: whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from netns.base.files import file_or_example, locked_file, write_whole


@pytest.mark.parametrize("synchronised", [False, True])
def test_write_whole__replaces_and_leaves_nothing_else(tmp_path: Path, *, synchronised: bool) -> None:
    path = tmp_path / "a"
    for content in (b"one", b"two"):
        write_whole(path, content, mode=0o600, synchronised=synchronised)
        assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_write_whole__exclusive_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_whole(path, b"one", exclusive=True)
    with pytest.raises(FileExistsError):
        write_whole(path, b"two", exclusive=True)
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_write_whole__replaces_a_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "a").symlink_to("other")
    write_whole(tmp_path / "a", b"own")
    assert (tmp_path / "other").read_bytes() == b"other"
    assert (tmp_path / "a").read_bytes() == b"own"


def test_write_whole__an_error_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "a", b"own")
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_locked_file__one_at_a_time_whoever_removes_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = locked_file(path)
    with pytest.raises(BlockingIOError):
        locked_file(path)
    path.unlink()  # by who has it, at its end
    second = locked_file(path)
    os.close(first)
    with pytest.raises(BlockingIOError):
        locked_file(path)
    os.close(second)
    os.close(locked_file(path))


def test_locked_file__follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("other")
    with pytest.raises(OSError, match="symbolic links"):
        locked_file(tmp_path / "lock")


def test_file_or_example__own_files_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples, here = tmp_path / "examples", tmp_path / "here"
    for directory in (examples, here):
        directory.mkdir()
    (examples / "a.yaml").write_text("")
    (examples / "b.yaml").write_text("")
    (here / "b").write_text("")
    monkeypatch.chdir(here)
    assert file_or_example("a", examples=examples) == examples / "a.yaml"
    assert file_or_example("b", examples=examples) == Path("b")
    assert file_or_example("c", examples=examples) == Path("c")
    assert file_or_example("../examples/a", examples=examples) == Path("../examples/a")
