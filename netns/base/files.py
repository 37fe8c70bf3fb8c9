"""Files that are there whole or not at all, and files that one process has at a time, whatever ends it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def write_whole(
    path: Path, content: bytes, *, mode: int = 0o666, exclusive: bool = False, synchronised: bool = False
) -> None:
    """Write a file under another name, and give it its own. Raises OSError.

    `exclusive`: FileExistsError if there is one; default: it is replaced. `synchronised`: also after a loss of power.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if synchronised:
                file.flush()
                os.fsync(descriptor)
        if exclusive:
            os.link(temporary, path)
        else:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if synchronised:
        synchronise(path.parent)


def synchronise(directory: Path) -> None:
    """Have the names in a directory outlive a loss of power. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_or_example(name: str | Path, *, examples: Path) -> Path:
    """Return the file `name`, or the example NAME.yaml if there is no such file; the file is not read."""
    path, example = Path(name), examples / f"{name}.yaml"
    return example if not path.exists() and example.parent == examples and example.is_file() else path


def locked_file(path: Path) -> int:
    """Return a descriptor of a file, made if missing, that is locked until it is closed.

    Raises BlockingIOError if another process has locked it, and other OSErrors.
    """
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), path.lstat()):
                return lock
        except FileNotFoundError:
            pass  # who had it has removed it and ended, between the two calls
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
