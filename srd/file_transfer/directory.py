"""A directory as a place to receive into. Blocking."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Final

from srd.file_transfer.digests import file_digest
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.leftovers import Leftover, expire, leftovers
from srd.file_transfer.partial_file import PartialFile, refusal_of
from srd.file_transfer.protocol import STANDARD_STREAM, Offer, Offers
from srd.file_transfer.source_file import times
from srd.file_transfer.tree import DirectoryTree

_READ_BYTES: Final = 256 << 10


class Directory:
    """The place. With `overwrite` existing files are replaced."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self.title = f"files go to {path}"
        self._path = path
        self._tree = DirectoryTree(path)
        self._overwrite = overwrite

    def check(self, offers: Offers) -> None:
        """Take any session."""

    def store(self, offer: Offer, *, stop: threading.Event) -> PartialFile:
        """Return what a file is received into. Raises TransferError for a pipe without a name."""
        if offer.is_pipe and offer.name == STANDARD_STREAM:
            raise TransferError(
                "standard input, or a pipe, needs a name in the receiver's directory: add --name NAME to srd send"
            )
        return PartialFile(self._tree, offer, overwrite=self._overwrite, stop=stop)

    def make_directory(self, offer: Offer) -> dict[str, str]:
        """Make a directory; return what the file system does not keep of it. Raises TransferError."""
        return self._tree.make_directory(offer)

    def hash_there(self, offer: Offer, *, stop: threading.Event) -> str:
        """Return the hash of the file that lies under a name, if it has the size of the offer; else an empty text.

        Raises TransferError.
        """
        try:
            fd = self._open_there(offer)
            if fd < 0:
                return ""
            try:
                before, found = os.fstat(fd), _hash_of(fd, offer.file_hash, stop=stop)
                return found if times(os.fstat(fd)) == times(before) else ""  # another file, if it changes
            finally:
                os.close(fd)
        except OSError as error:
            raise refusal_of(error, name=offer.name, what="cannot be read") from error

    def _open_there(self, offer: Offer) -> int:
        directory, last = self._tree.open_parent(offer.name)
        try:
            status = os.stat(last, dir_fd=directory, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode) or status.st_size != offer.size:
                return -1
            return os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        except FileNotFoundError:
            return -1
        finally:
            os.close(directory)

    def path(self, offer: Offer) -> Path | None:
        """Return where a file is when it is final."""
        return self._path / offer.name

    def leftovers(self) -> list[Leftover]:
        """List what earlier processes left. Raises OSError."""
        return leftovers(self._path)

    def expire(self, transfer: str) -> Leftover | None:
        """Remove what is left of a transfer if nobody uses it and its time is over. Raises OSError."""
        return expire(self._path, transfer)

    def stop(self) -> None:
        """Nothing waits for a consumer here."""


def _hash_of(fd: int, file_hash: str, *, stop: threading.Event) -> str:
    digest = file_digest(file_hash)
    while piece := os.read(fd, _READ_BYTES):
        if stop.is_set():
            raise TransferInterruptedError("stopped")
        digest.update(memoryview(piece))
    return digest.hexdigest()
