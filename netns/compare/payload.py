"""The file that crosses the fabric, and the memory that both receivers write it to.

Everything lies in one directory of a tmpfs, so that no disk is measured. Its name is fixed, so that a run removes what
a killed one left. A lock allows one run at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.compare.errors import CompareError

TMPFS: Final = Path("/dev/shm")  # noqa: S108  what we make there is 0700, checked to be ours, and never followed as a link
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Payload:
    """The file to send, and the directory that receives it."""

    source: Path
    """The file."""

    byte_count: int
    """Its size."""

    sha256: str
    """Its SHA-256, in hex."""

    output: Path
    """An empty directory on a tmpfs."""

    def landed_intact(self) -> bool:
        """Read back the received file, independently of what the daemons report."""
        path = self.output / self.source.name
        return path.is_file() and _sha256(path) == self.sha256

    def clear(self) -> None:
        """Remove the received files."""
        for path in self.output.iterdir():
            path.unlink()


@contextlib.contextmanager
def prepared(*, name: str, file: Path | None, byte_count: int, seed: int) -> Iterator[Payload]:
    """Yield the payload: the user's `file`, or `byte_count` random bytes from `seed`. All is removed afterwards.

    Raises CompareError when the file cannot be read, the tmpfs is too small, or another run uses it.
    """
    if file is not None:
        byte_count = _readable_size(file)
    with _workspace(TMPFS / f"srd-{name}") as directory:
        _check_room(directory, byte_count=byte_count if file else 2 * byte_count)
        output = directory / "out"
        output.mkdir()
        source = file.resolve() if file else _random_file(directory / "payload.bin", byte_count=byte_count, seed=seed)
        yield Payload(source=source, byte_count=byte_count, sha256=_sha256(source), output=output)


@contextlib.contextmanager
def _workspace(directory: Path) -> Iterator[Path]:
    """Make `directory`, remove what a killed run left, and lock it; remove it at the end."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise CompareError(f"{directory}: {error.strerror}") from None
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise CompareError(f"{directory}: belongs to another user; remove it")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CompareError(f"{directory}: another run is using it; wait until it ends") from None
        _empty(directory)
        try:
            yield directory
        finally:
            shutil.rmtree(directory)
    finally:
        os.close(descriptor)


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _check_room(directory: Path, *, byte_count: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < byte_count + (16 << 20):
        raise CompareError(
            f"{TMPFS}: {free >> 20} MiB free, {byte_count >> 20} MiB needed; use a smaller --size, "
            f"or enlarge it: mount -o remount,size=2G {TMPFS}"
        )


def _readable_size(file: Path) -> int:
    try:
        with file.open("rb") as opened:
            if not file.is_file():
                raise CompareError(f"{file}: not a regular file")
            return os.fstat(opened.fileno()).st_size
    except OSError as error:
        raise CompareError(f"{file}: {error.strerror}") from None


def _random_file(path: Path, *, byte_count: int, seed: int) -> Path:
    source = random.Random(seed)  # noqa: S311  reproducible filling, no secret
    with path.open("wb") as file:
        for start in range(0, byte_count, _CHUNK_BYTES):
            file.write(source.randbytes(min(_CHUNK_BYTES, byte_count - start)))
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
