"""The file of a workload, and the memory that its receivers write it to.

Everything lies in one directory of a tmpfs, so that no disk is measured. The directory's name has this process's id, so
that a later run finds and removes what a killed one left.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from srd.compare.errors import PayloadError
from srd.compare.traffic import File

TMPFS: Final = Path("/dev/shm")  # noqa: S108  what we make there is 0700, and never followed as a link
_NAME: Final = "srd-compare-"
_SEED: Final = 1
"""Of random bytes: which ones they are makes no difference."""
_CHUNK_BYTES: Final = 1 << 20
_SPARE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Payload:
    """A file to send, and the directory that receives it."""

    source: Path
    size_bytes: int
    sha256: str
    """In hex."""
    output: Path
    """A directory on a tmpfs."""

    def landed_intact(self) -> bool:
        """Read back the received file, independently of what its receiver says."""
        path = self.output / self.source.name
        return path.is_file() and _sha256(path) == self.sha256

    def clear(self) -> None:
        """Remove what was received."""
        for path in self.output.iterdir():
            path.unlink()


class Payloads(contextlib.ExitStack):
    """Has the file of the workload that is being measured; a context manager that removes it."""

    def __init__(self) -> None:
        super().__init__()
        self._made: tuple[File, Payload] | None = None

    def of(self, file: File) -> Payload:
        """Return a workload's file: made at its first cell, and kept until another one's. Raises PayloadError."""
        if self._made is None or self._made[0] != file:
            self._made = None
            self.close()
            self._made = file, self.enter_context(prepared(file))
        return self._made[1]


@contextlib.contextmanager
def prepared(file: File) -> Iterator[Payload]:
    """Yield a workload's file: the user's, or random bytes. All that was made is removed afterwards.

    Raises PayloadError when the file cannot be read, or the tmpfs is too small.
    """
    with _workspace(TMPFS) as directory:
        _check_room(directory, needed_bytes=file.size_bytes if file.path else 2 * file.size_bytes)
        output = directory / "out"
        output.mkdir()
        try:
            source = (
                Path(file.path) if file.path else _random_file(directory / "payload.bin", size_bytes=file.size_bytes)
            )
            payload = Payload(source, file.size_bytes, sha256=_sha256(source), output=output)
        except OSError as error:
            raise PayloadError(f"{error.filename}: {error.strerror}") from None
        yield payload


@contextlib.contextmanager
def _workspace(tmpfs: Path) -> Iterator[Path]:
    """Make a directory, after removing what killed runs have left; remove it at the end."""
    for left in tmpfs.glob(f"{_NAME}*"):
        if _is_left(left):
            shutil.rmtree(left, ignore_errors=True)
    directory = tmpfs / f"{_NAME}{os.getpid()}"
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise PayloadError(f"{directory}: {error.strerror}") from None
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def _is_left(path: Path) -> bool:
    """Whether a directory is ours, and of a process that runs no more."""
    process_id = path.name.removeprefix(_NAME)
    return (
        process_id.isdecimal()
        and not Path(f"/proc/{process_id}").exists()
        and not path.is_symlink()
        and path.stat().st_uid == os.geteuid()
    )


def _check_room(directory: Path, *, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes + _SPARE_BYTES:
        raise PayloadError(
            f"{TMPFS}: {free_bytes >> 20} MiB free, {needed_bytes >> 20} MiB needed; give a smaller --size, "
            f"or enlarge it: mount -o remount,size=2G {TMPFS}"
        )


def _random_file(path: Path, *, size_bytes: int) -> Path:
    source = random.Random(_SEED)  # noqa: S311  reproducible filling, no secret
    with path.open("wb") as file:
        for start in range(0, size_bytes, _CHUNK_BYTES):
            file.write(source.randbytes(min(_CHUNK_BYTES, size_bytes - start)))
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
