"""What a file is received into, and where: a partial file in a directory, or standard output."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from srd.file_transfer.chunk_file import ChunkFile
from srd.file_transfer.errors import TransferError
from srd.file_transfer.leftovers import Leftover
from srd.file_transfer.ordered_chunks import OrderedChunks
from srd.file_transfer.protocol import Offer, Offers


class FileStore:
    """A file being received: `open`, `put` chunks, `verify`, `publish`; then `abort`, or before `leave`.

    Blocking; used from a worker thread. Raises TransferError. This one is for what is written in order and has no name.
    """

    def __init__(self, offer: Offer, chunks: ChunkFile | OrderedChunks) -> None:
        self.unremoved = ""
        """One line with the file that could not be removed and the reason; empty if there is none."""
        self.unkept = dict[str, str]()
        """What the file system does not keep of a file that is final: its permissions, its time; with one line each."""
        self.ordered = chunks if isinstance(chunks, OrderedChunks) else None
        """The chunks, if they are written in order. Such a store goes from one attempt to the next as it is."""
        self._offer = offer
        self._chunks = chunks

    @property
    def resumed_chunks(self) -> int:
        """Number of leading chunks of earlier attempts that were verified."""
        return self._chunks.taken

    @property
    def resumed_beyond(self) -> list[tuple[int, int]]:
        """Ranges of such chunks behind a missing one: first and number."""
        return [] if isinstance(self._chunks, OrderedChunks) else self._chunks.beyond

    @property
    def size_bytes(self) -> int:
        """Bytes of the file, when it is complete."""
        return self._offer.size if self.ordered is None else self.ordered.size_bytes

    def open(self) -> None:
        """Begin to receive, or go on."""

    def put(self, index: int, views: Sequence[memoryview]) -> None:
        """Take a chunk, which lies in these pieces of memory."""
        self._chunks.put(index, views)

    def announce(self, first: int, digests: Sequence[bytes]) -> None:
        """Take the sender's digests of successive chunks."""
        self._chunks.announce(first, digests)

    def leave_out(self, first: int, chunks: int) -> None:
        """Take so many chunks as a hole."""
        if isinstance(self._chunks, OrderedChunks):
            raise TransferError(f"{self._offer.name}: a hole in what is written in order")
        self._chunks.leave_out(first, chunks)

    def verify(self, *, digest: str) -> str:
        """Compare the file's digest with the sender's; return it."""
        if not self._chunks.complete:
            raise TransferError(f"{self._offer.name}: chunks, or their digests, did not come")
        actual = self._chunks.hexdigest()
        if actual != digest:
            kind = self._offer.file_hash.upper()
            raise TransferError(
                f"{self._offer.name}: {kind} is {actual} at the receiver, {digest[:64]!r} at the sender"
            )
        return actual

    def publish(self, *, sync: bool) -> None:
        """Make the verified file final. `sync`: sync it before; the caller may have."""

    def sync_directory(self) -> None:
        """Sync the directory that the file lies in."""

    def file_system(self) -> tuple[int, int]:
        """Return the device of the file system that the file lies on, and an open descriptor there."""
        return -1, -1

    def directory(self) -> tuple[int, int]:
        """Return device and inode of the directory that the file lies in."""
        return -1, -1

    def leave(self) -> None:
        """Keep what there is for the next attempt."""
        if self.ordered is not None:
            self.ordered.forget()

    def abort(self) -> None:
        """Close, and remove what has no final name. A failure to do so is not raised: see `unremoved`."""


class FileSink(Protocol):
    """Where files are received into."""

    title: str
    """What becomes of files, in messages to people."""

    def check(self, offers: Offers) -> None:
        """Raise TransferError for a session that cannot be received here."""

    def store(self, offer: Offer, *, stop: threading.Event) -> FileStore:
        """Return what a file is received into. Raises TransferError."""

    def make_directory(self, offer: Offer) -> dict[str, str]:
        """Make a directory; return what the file system does not keep of it, with a line each. Blocking.

        Raises TransferError.
        """

    def hash_there(self, offer: Offer, *, stop: threading.Event) -> str:
        """Return the hash of the file that lies under a name, if it has the size of the offer; else an empty text.

        Raises TransferError. Blocking.
        """

    def path(self, offer: Offer) -> Path | None:
        """Return where a file is when it is final."""

    def leftovers(self) -> list[Leftover]:
        """List what earlier processes left. Raises OSError. Blocking."""

    def expire(self, transfer: str) -> Leftover | None:
        """Remove what is left of a transfer if nobody uses it; return it, or None. Raises OSError. Blocking."""

    def stop(self) -> None:
        """Have no thread wait any longer for a consumer: the process ends."""
