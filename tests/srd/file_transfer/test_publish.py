"""srd.file_transfer.partial_file: a file gets its name, and replaces none, with hard links and without."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from srd.file_transfer import partial_file as module
from srd.file_transfer.partial_file import publish
from tests.failing import refusing
from tests.srd.file_transfer.ends import names


@pytest.fixture(params=["link", "rename", "neither"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file system with hard links, with renameat2 only, or with neither."""
    if request.param != "link":
        monkeypatch.setattr(os, "link", refusing(errno.EPERM))
    if request.param == "neither":
        monkeypatch.setattr(module, "rename_noreplace", refusing(errno.EINVAL))
    return str(request.param)


def publish_in(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        is_removed = publish(directory / "partial", "final", directory=fd)
    finally:
        os.close(fd)
    assert is_removed is not (directory / "partial").exists()


def test_publish__gives_the_name(tmp_path: Path, file_system: str) -> None:
    partial, final = tmp_path / "partial", tmp_path / "final"
    partial.write_bytes(b"new")
    publish_in(tmp_path)
    assert final.read_bytes() == b"new"
    assert names(tmp_path) == (["final", "partial"] if file_system == "link" else ["final"])


@pytest.mark.usefixtures("file_system")
def test_publish__replaces_nothing_bad_flow(tmp_path: Path) -> None:
    partial, final = tmp_path / "partial", tmp_path / "final"
    partial.write_bytes(b"new")
    final.write_bytes(b"old")
    with pytest.raises(FileExistsError):
        publish_in(tmp_path)
    assert final.read_bytes() == b"old"
    assert names(tmp_path) == ["final", "partial"]


def test_publish__a_disk_that_fails_bad_flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refusing(errno.EIO))
    (tmp_path / "partial").write_bytes(b"new")
    with pytest.raises(OSError, match="Input/output error"):
        publish_in(tmp_path)
    assert names(tmp_path) == ["partial"]
