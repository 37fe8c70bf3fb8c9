from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.compare.errors import CompareError
from scripts.compare.payload import Payload, prepared


@pytest.fixture(autouse=True)
def tmpfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory in place of the tmpfs; it must be empty at the end."""
    directory = tmp_path / "tmpfs"
    directory.mkdir()
    monkeypatch.setattr("scripts.compare.payload.TMPFS", directory)
    yield directory
    assert list(directory.iterdir()) == []


def test_prepared__random_bytes_from_the_seed() -> None:
    def digest(seed: int) -> str:
        with prepared(name="t", file=None, byte_count=(1 << 20) + 5, seed=seed) as payload:
            data = payload.source.read_bytes()
            assert len(data) == payload.byte_count == (1 << 20) + 5
            assert hashlib.sha256(data).hexdigest() == payload.sha256
            return payload.sha256

    assert digest(1) == digest(1) != digest(2)


def test_prepared__own_file_is_not_moved(tmp_path: Path) -> None:
    own = tmp_path / "own.iso"
    own.write_bytes(b"abc")
    with prepared(name="t", file=own, byte_count=999, seed=1) as payload:
        assert (payload.source, payload.byte_count) == (own, 3)
        shutil.copy(own, payload.output)
        assert payload.landed_intact()
        (payload.output / own.name).write_bytes(b"abd")
        assert not payload.landed_intact()
        payload.clear()
        assert not payload.landed_intact()
    assert own.read_bytes() == b"abc"


def test_prepared__clears_remainders_of_a_killed_run(tmpfs: Path) -> None:
    (tmpfs / "srd-t" / "out").mkdir(parents=True)
    (tmpfs / "srd-t" / "payload.bin").write_bytes(b"old")
    (tmpfs / "srd-t" / "out" / "payload.bin").write_bytes(b"old")
    with prepared(name="t", file=None, byte_count=0, seed=1) as payload:
        assert payload.source.read_bytes() == b""
        assert list(payload.output.iterdir()) == []


def test_prepared__removes_all_after_an_error() -> None:
    def fail(_payload: Payload) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), prepared(name="t", file=None, byte_count=10, seed=1) as payload:
        fail(payload)


def test_prepared__second_run_bad_flow() -> None:
    with (
        prepared(name="t", file=None, byte_count=10, seed=1) as first,
        pytest.raises(CompareError, match="another run is using it"),
        prepared(name="t", file=None, byte_count=10, seed=1),
    ):
        pass
    assert not first.source.exists()


def test_prepared__missing_file_bad_flow(tmp_path: Path) -> None:
    with (
        pytest.raises(CompareError, match=r"nowhere: No such file"),
        prepared(name="t", file=tmp_path / "nowhere", byte_count=1, seed=1),
    ):
        pass


def test_prepared__no_regular_file_bad_flow() -> None:
    with (
        pytest.raises(CompareError, match="not a regular file"),
        prepared(name="t", file=Path("/dev/null"), byte_count=1, seed=1),
    ):
        pass


def test_prepared__a_link_in_its_place_bad_flow(tmpfs: Path, tmp_path: Path) -> None:
    (tmpfs / "srd-t").symlink_to(tmp_path)
    with pytest.raises(CompareError, match="srd-t"), prepared(name="t", file=None, byte_count=1, seed=1):
        pass
    (tmpfs / "srd-t").unlink()


def test_prepared__too_little_memory_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=64 << 20))
    with (
        pytest.raises(CompareError, match=r"64 MiB free, 512 MiB needed; use a smaller --size"),
        prepared(name="t", file=None, byte_count=256 << 20, seed=1),
    ):
        pass


def test_prepared__foreign_directory_bad_flow(tmpfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmpfs / "srd-t").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(CompareError, match="another user"), prepared(name="t", file=None, byte_count=1, seed=1):
        pass
    (tmpfs / "srd-t").rmdir()
