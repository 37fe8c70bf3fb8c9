"""A separate small file system, which can be full or read-only, and a receiver's directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from srd.file_transfer.sessions import TransferSessions
from tests.small_file_system import mounted
from tests.srd.file_transfer.ends import into

TINY_BYTES = 1 << 20


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """Mount a tmpfs of 1 MiB; tests that use it carry the mark `root`."""
    with mounted(tmp_path / "tiny", f"size={TINY_BYTES}") as directory:
        yield directory


@pytest.fixture
def sessions(output: Path) -> Iterator[TransferSessions]:
    """What receives into the directory, and replaces nothing there."""
    with closing(into(output)) as made:
        yield made
