"""Renaming a file without replacing another one, on all file systems, including those without hard links."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from pathlib import Path

_AT_FDCWD = -100  # linux/fcntl.h
_RENAME_NOREPLACE = 1  # linux/fs.h
_libc = ctypes.CDLL(None, use_errno=True)
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.EINVAL}
"""Errors of file systems without hard links: FAT and exFAT return EPERM, others vary."""
_NO_FLAG = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def publish(partial: Path, final: str, *, directory: int) -> bool:
    """Give `partial` the name `final` in an open directory; return whether `partial` was removed.

    Raises OSError, FileExistsError.
    """
    try:
        os.link(partial, final, dst_dir_fd=directory)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    else:
        return False
    try:
        rename_noreplace(partial, final, directory=directory)
    except OSError as error:
        if error.errno not in _NO_FLAG:
            raise
        # Neither is supported: create an empty file, which fails if the name exists, and replace it.
        # Needs no descriptor, of which there may be none left.
        os.mknod(final, stat.S_IFREG | 0o666, dir_fd=directory)
        os.replace(partial, final, dst_dir_fd=directory)
    return True


def rename_noreplace(source: Path, target: str, *, directory: int) -> None:
    """Rename a file into an open directory with renameat2(2), which refuses an existing target. Raises OSError."""
    if _libc.renameat2(_AT_FDCWD, os.fsencode(source), directory, os.fsencode(target), _RENAME_NOREPLACE) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(source), None, target)
