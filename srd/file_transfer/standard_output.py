"""Standard output as a place to receive into: one file, written in order as its chunks are verified."""

from __future__ import annotations

import os
import select
import threading
from pathlib import Path
from typing import Final

from srd.file_transfer.errors import TransferError
from srd.file_transfer.leftovers import Leftover
from srd.file_transfer.ordered_chunks import OrderedChunks
from srd.file_transfer.protocol import Offer, Offers
from srd.file_transfer.store import FileStore

_LOOK_EVERY_MS: Final = 100
"""How often a thread that waits for the consumer looks whether it shall stop."""


class StandardOutput:
    """The place. A descriptor that is no terminal is not blocking until `close`, as other processes may share it."""

    def __init__(self, fd: int) -> None:
        self.title = "file goes to standard output"
        self._fd = fd
        self._was_blocking = os.get_blocking(fd)
        self._is_used = False
        self._stop = threading.Event()
        if not os.isatty(fd):
            os.set_blocking(fd, False)

    def check(self, offers: Offers) -> None:
        """Raise TransferError for more than one file."""
        if len(offers.offers) + offers.files_left != 1 or offers.offers[0].is_directory:
            raise TransferError(
                "the receiver writes to standard output, which takes one file; send an archive: "
                "tar c DIRECTORY | srd send - HOST"
            )

    def store(self, offer: Offer, *, stop: threading.Event) -> FileStore:  # noqa: ARG002 - `self.stop` does
        """Return what the file is received into. Raises TransferError for a second one."""
        if self._is_used:
            raise TransferError(f"{offer.name}: the receiver has written another file to its standard output")
        self._is_used = True
        return FileStore(offer, OrderedChunks(offer, write=self.write))

    def make_directory(self, offer: Offer) -> dict[str, str]:
        """Raise TransferError."""
        raise TransferError(f"{offer.name}: the receiver writes to standard output, which takes no directory")

    def hash_there(self, offer: Offer, *, stop: threading.Event) -> str:  # noqa: ARG002
        """Return nothing: there is no file."""
        return ""

    def path(self, offer: Offer) -> Path | None:  # noqa: ARG002
        """Return None."""
        return None

    def leftovers(self) -> list[Leftover]:
        """Return nothing."""
        return []

    def expire(self, transfer: str) -> Leftover | None:  # noqa: ARG002
        """Return None."""
        return None

    def stop(self) -> None:
        """Have `write` wait no longer."""
        self._stop.set()

    def close(self) -> None:
        """Leave the descriptor as it was."""
        os.set_blocking(self._fd, self._was_blocking)

    def write(self, chunk: bytes) -> None:
        """Write a chunk; wait for the consumer as long as it takes. Raises TransferError. Blocking."""
        rest = memoryview(chunk)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                self._wait()
            except BrokenPipeError as error:
                raise TransferError("the receiver's standard output was closed by its reader") from error
            except OSError as error:
                raise TransferError(f"the receiver's standard output cannot be written: {error.strerror}") from error

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        while not poll.poll(_LOOK_EVERY_MS):
            if self._stop.is_set():
                raise TransferError("the receiver was stopped")
