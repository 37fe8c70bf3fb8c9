"""What a file is received into: a partial file in a directory, or standard output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from srd.file_transfer.chunk_file import ChunkFile
from srd.file_transfer.errors import TransferError
from srd.file_transfer.ordered_chunks import OrderedChunks
from srd.file_transfer.protocol import Offer


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
        self.chunks = chunks

    @property
    def size_bytes(self) -> int:
        """Bytes of the file, when it is complete."""
        return self._offer.size if self.ordered is None else self.ordered.size_bytes

    def open(self) -> None:
        """Begin to receive, or go on."""

    def put(self, index: int, views: Sequence[memoryview]) -> None:
        """Take a chunk, which lies in these pieces of memory."""
        with self._writing():
            self.chunks.put(index, views)

    def announce(self, first: int, digests: Sequence[bytes]) -> None:
        """Take the sender's digests of successive chunks."""
        with self._writing():
            self.chunks.announce(first, digests)

    def leave_out(self, first: int, chunks: int) -> None:
        """Take so many chunks as a hole."""
        with self._writing():
            self.chunks.leave_out(first, chunks)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise TransferError for what the file system refuses."""
        try:
            yield
        except OSError as error:
            raise TransferError(f"{self._offer.name}: cannot be written at the receiver: {error.strerror}") from error

    def verify(self, *, digest: str) -> str:
        """Compare the file's digest with the sender's; return it."""
        if not self.chunks.complete:
            raise TransferError(f"{self._offer.name}: chunks, or their digests, did not come")
        actual = self.chunks.hexdigest()
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
