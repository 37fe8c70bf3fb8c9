"""The chunks of what is written in order: a pipe, and any file that goes to standard output.

A chunk is written when those before it are, its digest has come, and is that of the chunk. So nothing is written that
is not verified. Until then it is kept, within PIPE_WINDOW chunks of those that are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from srd.file_transfer.digests import chunk_digest, file_digest
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.protocol import PIPE_WINDOW, Offer


class OrderedChunks:
    """The chunks of one file. Blocking; used from a worker thread. `write` writes all of a chunk; it may raise."""

    def __init__(self, offer: Offer, *, write: Callable[[bytes], None]) -> None:
        self.taken = 0
        """Leading chunks that are written."""
        self.beyond: list[tuple[int, int]] = []
        """None: nothing is written behind a missing one."""
        self.size_bytes = 0
        """Of the leading ones."""
        self._offer = offer
        self._write = write
        self._digest = file_digest(offer.file_hash)
        self._landed: dict[int, bytes] = {}
        self._announced: dict[int, bytes] = {}

    @property
    def complete(self) -> bool:
        """Whether nothing waits for what comes before."""
        return not (self._landed or self._announced)

    def put(self, index: int, views: Sequence[memoryview]) -> None:
        """Take a chunk, and write what is in turn. Raises TransferError."""
        chunk = b"".join(views)
        if not 1 <= len(chunk) <= self._offer.chunk_bytes:
            raise TransferError(f"{self._offer.name}: chunk {index} of {len(chunk)} bytes is not part of the file")
        self._keep(index, chunk, into=self._landed)

    def announce(self, first: int, digests: Sequence[bytes]) -> None:
        """Take the sender's digests of successive chunks, and write what is in turn. Raises TransferError."""
        for index, digest in enumerate(digests, first):
            self._keep(index, digest, into=self._announced)

    def leave_out(self, first: int, chunks: int) -> None:  # noqa: ARG002 - as of a file
        """Raise TransferError: zeros are sent, too."""
        raise TransferError(f"{self._offer.name}: a hole in what is written in order")

    def _keep(self, index: int, value: bytes, *, into: dict[int, bytes]) -> None:
        if index < self.taken or index in into:
            raise TransferError(f"{self._offer.name}: chunk {index}, or its digest, came twice")
        if index >= self.taken + PIPE_WINDOW:
            raise TransferError(f"{self._offer.name}: chunk {index} came long before chunk {self.taken}")
        into[index] = value
        while self.taken in self._landed and self.taken in self._announced:
            self._take(self._landed.pop(self.taken), self._announced.pop(self.taken))

    def _take(self, chunk: bytes, digest: bytes) -> None:
        view = memoryview(chunk)
        if chunk_digest([view]) != digest:
            raise TransferInterruptedError(
                f"{self._offer.name}: chunk {self.taken} arrived damaged: its digests differ"
            )
        self._write(chunk)
        self._digest.update(view)
        self.size_bytes += len(chunk)
        self.taken += 1

    def forget(self) -> None:
        """Drop what is not written: its sender sends it again."""
        self._landed.clear()
        self._announced.clear()

    def hexdigest(self) -> str:
        """Return the digest of what is written, in hex."""
        return self._digest.hexdigest()
