"""A separate small file system, which can be full or read-only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

TINY_BYTES = 1 << 20


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """Mount a tmpfs of 1 MiB; tests that use it carry the mark `root`."""
    directory = tmp_path / "tiny"
    directory.mkdir()
    options = f"size={TINY_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "srd-test", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)
