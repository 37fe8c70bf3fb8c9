"""A separate small file system, which can be full or read-only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_file_system import mounted

TINY_BYTES = 1 << 20


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """Mount a tmpfs of 1 MiB; tests that use it carry the mark `root`."""
    with mounted(tmp_path / "tiny", f"size={TINY_BYTES}") as directory:
        yield directory
