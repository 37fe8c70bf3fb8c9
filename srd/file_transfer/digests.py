"""Digests of what a file transfer moves: xxh3-128 of each chunk, BLAKE3 or SHA-256 of the file.

Both ends compute a chunk's digest while the chunk is in the CPU cache: the sender when it has read it, the receiver
when it has landed. It shows which chunk is damaged, and is no protection against an adversary: encryption is. The
file's digest is the one that is reported. Both release the GIL.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from blake3 import blake3
from xxhash import xxh3_128

CHUNK_DIGEST_BYTES: Final = 16


class FileDigest(Protocol):
    """The running digest of a file."""

    name: str

    def update(self, data: memoryview, /) -> object:
        """Add the next bytes."""

    def hexdigest(self) -> str:
        """Return the digest of what was added so far, in hex."""


_HASHES: Final[dict[str, Callable[[], Any]]] = {"blake3": blake3, "sha256": hashlib.sha256}
"""By the names in `protocol.FILE_HASHES`."""


def chunk_digest(views: Iterable[memoryview]) -> bytes:
    """Return the digest of a chunk, which may lie in several pieces."""
    digest = xxh3_128()
    for view in views:
        digest.update(view)
    return digest.digest()


def file_digest(name: str) -> FileDigest:
    """Return the digest of no bytes yet; `name` is one of `protocol.FILE_HASHES`."""
    digest: FileDigest = _HASHES[name]()
    return digest
