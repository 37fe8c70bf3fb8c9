"""The file of a workload: what is made, found again, and removed."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from srd.compare import payload as payload_module
from srd.compare.errors import PayloadError
from srd.compare.payload import Payload, Payloads, prepared
from srd.compare.traffic import File


@pytest.fixture(autouse=True)
def tmpfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in place of the tmpfs; it must be empty at the end."""
    directory = tmp_path / "tmpfs"
    directory.mkdir()
    monkeypatch.setattr(payload_module, "TMPFS", directory)
    yield directory
    assert list(directory.iterdir()) == []


def nobody() -> int:
    """Return the id of a process that runs no more."""
    process_id = os.posix_spawn("/bin/true", ["/bin/true"], {})
    os.waitpid(process_id, 0)
    return process_id


def test_prepared__random_bytes_which_are_the_same_each_time() -> None:
    def digest() -> str:
        with prepared(File((1 << 20) + 5)) as payload:
            data = payload.source.read_bytes()
            assert len(data) == payload.size_bytes == (1 << 20) + 5
            assert hashlib.sha256(data).hexdigest() == payload.sha256
            return payload.sha256

    assert digest() == digest()


def test_prepared__own_file_is_not_moved(tmp_path: Path) -> None:
    own = tmp_path / "own.iso"
    own.write_bytes(b"abc")
    with prepared(File(3, str(own))) as payload:
        assert (payload.source, payload.size_bytes) == (own, 3)
        shutil.copy(own, payload.output)
        assert payload.landed_intact()
        (payload.output / own.name).write_bytes(b"abd")
        assert not payload.landed_intact()
        payload.clear()
        assert not payload.landed_intact()
    assert own.read_bytes() == b"abc"


def test_payloads__one_for_all_cells_of_a_workload() -> None:
    with Payloads() as payloads:
        first = payloads.of(File(10))
        assert payloads.of(File(10)) is first
        second = payloads.of(File(20))
        assert (second.size_bytes, second.source.stat().st_size) == (20, 20)
        assert payloads.of(File(10)) is not first


def test_prepared__removes_what_a_killed_run_has_left_and_nothing_else(tmpfs: Path) -> None:
    left, running = tmpfs / f"srd-compare-{nobody()}", tmpfs / f"srd-compare-{os.getppid()}"
    others = [running, tmpfs / "srd-compare-x", tmpfs / "something"]
    for directory in (left, *others):
        (directory / "out").mkdir(parents=True)
    link = tmpfs / f"srd-compare-{nobody()}"
    link.symlink_to(tmpfs / "something")
    with prepared(File(1)):
        assert not left.exists()
    assert all((directory / "out").exists() for directory in others)
    link.unlink()
    for directory in others:
        shutil.rmtree(directory)


def test_prepared__removes_all_after_an_error() -> None:
    def fail(_payload: Payload) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), prepared(File(10)) as payload:
        fail(payload)


def test_prepared__missing_file_bad_flow(tmp_path: Path) -> None:
    with pytest.raises(PayloadError, match=r"nowhere: No such file"), prepared(File(1, str(tmp_path / "nowhere"))):
        pass


def test_prepared__something_in_its_place_bad_flow(tmpfs: Path, tmp_path: Path) -> None:
    place = tmpfs / f"srd-compare-{os.getpid()}"
    place.symlink_to(tmp_path)
    with pytest.raises(PayloadError, match="File exists"), prepared(File(1)):
        pass
    place.unlink()


def test_prepared__too_little_memory_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=64 << 20))
    with (
        pytest.raises(PayloadError, match=r"64 MiB free, 512 MiB needed; give a smaller --size"),
        prepared(File(256 << 20)),
    ):
        pass
