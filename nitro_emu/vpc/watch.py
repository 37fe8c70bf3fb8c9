"""When a file that people edit is to be read: when its status has changed, and stays the same for one look."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from netns.base.yaml_file import MAX_FILE_BYTES
from nitro_emu.errors import VpcError

Status = tuple[int, int, int, int]
"""What changes with a file's content: by a write, or by another file in its place."""

REMEDY: Final = "name the control plane's YAML file"


class FileWatch:
    """Decides when a file is to be read, from its status at each look. No I/O.

    A status that has changed since the last look may be that of a half-written file, and is looked at again first.
    """

    def __init__(self) -> None:
        self._last: Status | None = None
        self._read: Status | None = None  # of the content that was read last; None: to be read once more

    def is_due(self, status: Status | None, *, asked: bool) -> bool:
        """Whether to read the file, which has this status now (None: there is none), or somebody asked for that."""
        settled = status is not None and status == self._last
        self._last = status
        if status is None:
            self._read = None
            return asked
        return asked or (settled and status != self._read)

    def has_read(self, status: Status, *, asked: bool) -> None:
        """Remember what was read. A file read because somebody asked was perhaps not settled: it is read once more."""
        self._read = None if asked else status


def look(path: Path) -> Status | None:
    """Return a file's status; None if it cannot be had."""
    try:
        return status_of(path.stat())
    except OSError:
        return None


def status_of(status: os.stat_result) -> Status:
    """Return the parts of a status that change with the content."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read(path: Path) -> tuple[bytes, Status]:
    """Return a file's content and status. Raises VpcError."""
    try:
        with path.open("rb") as file:
            status = status_of(os.fstat(file.fileno()))
            content = file.read(MAX_FILE_BYTES + 1)
            if status != status_of(os.fstat(file.fileno())):
                raise VpcError(f"{path}: is being written; it is read again when that is done")
    except OSError as error:
        raise VpcError(f"{path}: cannot be read: {error.strerror}; {REMEDY}") from None
    return content, status
