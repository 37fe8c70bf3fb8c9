"""The receiver's directory: opens what a name stands for, and nothing outside of it. Blocking.

Each component of a path is opened from the descriptor of the one before (openat), without following links
(O_NOFOLLOW). So neither a link that lies in the directory nor one that appears meanwhile leads out of it. Directories
that are missing are made, closed to others until their own offer, which comes after their files, says their mode.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from srd.file_transfer.errors import TransferError
from srd.file_transfer.protocol import MODE_BITS, Offer, path_untrusted

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_PRIVATE = 0o700
_REMEMBERED = 1 << 16
"""Directories that were made and have no mode yet. Of more, the first ones stay closed to others."""


class DirectoryTree:
    """A directory to receive into. Its methods raise OSError for what the file system refuses."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made: OrderedDict[tuple[int, int], None] = OrderedDict()

    def open_parent(self, name: str) -> tuple[int, str]:
        """Open the directory that `name` lies in, after making it; return its descriptor and the last component."""
        *directories, last = path_untrusted(name)
        return self._open(directories), last

    def make_directory(self, offer: Offer) -> dict[str, str]:
        """Make a directory; return what it cannot have (see `set_mode`).

        Its mode and time are set if this daemon has made it: those of the user's own stay. Raises TransferError.
        """
        try:
            fd = self._open(list(path_untrusted(offer.name)))
        except OSError as error:
            raise TransferError(f"{offer.name}: cannot be made at the receiver: {error.strerror}") from error
        try:
            if (identity := _identity(fd)) not in self._made:
                return {}
            del self._made[identity]
            return set_mode(fd, offer) | set_time(fd, offer)
        finally:
            os.close(fd)

    def _open(self, components: list[str]) -> int:
        fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for component in components:
                inner = self._enter(fd, component)
                os.close(fd)
                fd = inner
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _enter(self, fd: int, component: str) -> int:
        try:
            return os.open(component, _FLAGS, dir_fd=fd)
        except FileNotFoundError:
            pass
        except NotADirectoryError:
            raise _as_said(fd, component) from None
        try:
            os.mkdir(component, _PRIVATE, dir_fd=fd)
        except FileExistsError:  # another transfer was faster
            return os.open(component, _FLAGS, dir_fd=fd)
        inner = os.open(component, _FLAGS, dir_fd=fd)
        self._made[_identity(inner)] = None
        if len(self._made) > _REMEMBERED:
            self._made.popitem(last=False)
        return inner


def set_mode(fd: int, offer: Offer) -> dict[str, str]:
    """Give an open file or directory the mode of its offer, if any.

    Return what is refused, with one line about it: file systems of other systems, and those that belong to other users,
    keep no modes or times (CIFS, FAT, some of NFS and FUSE). What a file contains does not depend on either.
    """
    mode = offer.mode
    return {} if mode is None else _kept(offer, "permissions", lambda: os.fchmod(fd, mode & MODE_BITS))


def set_time(fd: int, offer: Offer) -> dict[str, str]:
    """Give an open file or directory the time of its offer, if any; return what is refused, as `set_mode` does."""
    time_ns = offer.mtime_ns
    return {} if time_ns is None else _kept(offer, "time of modification", lambda: os.utime(fd, ns=(time_ns, time_ns)))


def _kept(offer: Offer, what: str, call: Callable[[], None]) -> dict[str, str]:
    try:
        call()
    except OSError as error:
        refused = f"{offer.name}: is received, but its {what} cannot be set here: {error.strerror}"
        return {what: f"{refused}; of further files this is not said"}
    return {}


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _as_said(fd: int, component: str) -> OSError:
    """Return the error for a component that is no directory; of a link, which O_NOFOLLOW refuses, it says so."""
    status = os.stat(component, dir_fd=fd, follow_symlinks=False)
    is_link = (status.st_mode & 0o170000) == 0o120000
    return OSError(errno.ENOTDIR, f"{component!r} is a link, which is not followed" if is_link else "Not a directory")
