"""A file system of its own for a test, which can be full or read-only; such tests carry the mark `root`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mounted(directory: Path, options: str) -> Iterator[Path]:
    """Make a directory and mount a tmpfs there, with the mount options."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "srd-test", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)  # a killed process may still be ending
