"""Partial files: what a running or interrupted transfer keeps in the directory.

`.srd-ID.part` holds the file's bytes. `.srd-ID.journal` has what can be resumed: a line with the offer, then the
digests of verified chunks (chunk_file.py).

The process that writes a partial file holds a lock on it (flock), which the kernel releases when the process ends, for
whatever reason. A partial file without a lock is a leftover. It is kept for the time that the sender announced for
retries, counted from the last write.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from srd.file_transfer.errors import TransferInterruptedError
from srd.file_transfer.protocol import MAX_PATH_BYTES, MAX_RETRY_S, OWN_PREFIX, Offer

GRACE_S = 10.0
"""Added to the sender's time: the two ends detect a loss at different times, and a handshake takes time."""
_HEAD_BYTES = 6 * MAX_PATH_BYTES + 200
"""Longest first line: JSON takes up to six characters for a byte of a name."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A partial file that no process writes."""

    transfer: str
    name: str
    expires_in_s: float


def part_path(directory: Path, transfer: str) -> Path:
    """Return the path of a transfer's partial file."""
    return directory / f"{OWN_PREFIX}{transfer}.part"


def journal_path(directory: Path, transfer: str) -> Path:
    """Return the path of a transfer's journal."""
    return directory / f"{OWN_PREFIX}{transfer}.journal"


def head_of(offer: Offer) -> bytes:
    """Return the journal's first line."""
    fields = {"name": offer.name, "size": offer.size, "chunk_bytes": offer.chunk_bytes}
    return json.dumps({**fields, "file_hash": offer.file_hash, "retry_for_s": offer.retry_for_s}).encode() + b"\n"


def open_locked(path: Path) -> int:
    """Open a partial file for writing, creating it if necessary, and lock it; return its descriptor.

    Raises OSError, and TransferInterruptedError when it is locked: by another process, or an attempt that is ending.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        is_ours = _lock(fd)
        if is_ours and os.fstat(fd).st_nlink:
            return fd
        os.close(fd)
        if not is_ours:
            raise TransferInterruptedError("another process is receiving this transfer into the same directory")
        # It expired and was removed before it was locked: try again.


def _lock(fd: int) -> bool:
    """Lock without waiting; return False if another process has the lock. Without lock support, return True."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def leftovers(directory: Path) -> list[Leftover]:
    """List the leftovers in a directory. Raises OSError if it cannot be read."""
    ours = (path.name for path in directory.glob(f"{OWN_PREFIX}*.*") if _is_ours(path))
    found = {name.removeprefix(OWN_PREFIX).partition(".")[0] for name in ours}
    return [leftover for transfer in sorted(found) if (leftover := _inspect(directory, transfer, remove=False))]


def _is_ours(path: Path) -> bool:
    return path.suffix in (".part", ".journal")


def expire(directory: Path, transfer: str) -> Leftover | None:
    """Remove a leftover that has expired; return it, or None when it is in use, not expired, or removed.

    Raises OSError if it cannot be removed.
    """
    return _inspect(directory, transfer, remove=True)


def _inspect(directory: Path, transfer: str, *, remove: bool) -> Leftover | None:
    part, journal = part_path(directory, transfer), journal_path(directory, transfer)
    name, retry_for_s = _read_head(journal)
    fd = -1
    try:
        try:
            fd = os.open(part, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            written_at = os.fstat(fd).st_mtime
        except FileNotFoundError:
            if not journal.exists():
                return None
            written_at = 0.0  # nothing to resume
        if fd >= 0 and not _lock(fd):
            return None
        keep_s = retry_for_s + GRACE_S
        left_s = min(written_at + keep_s - time.time(), keep_s)
        if remove:
            if left_s > 0:
                return None
            part.unlink(missing_ok=True)
            journal.unlink(missing_ok=True)
        return Leftover(transfer, name or part.name, max(left_s, 0.0))
    finally:
        if fd >= 0:
            os.close(fd)


def _read_head(journal: Path) -> tuple[str, float]:
    """Return the name and the retry time of the offer in a journal; empty and 0 for an invalid journal."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        with journal.open("rb") as file:
            head = json.loads(file.readline(_HEAD_BYTES))
        return str(head["name"]), max(0.0, min(float(head["retry_for_s"]), MAX_RETRY_S))
    return "", 0.0
