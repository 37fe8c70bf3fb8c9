"""srd.file_transfer.digests: known values, and pieces make the same digest as the whole."""

from __future__ import annotations

import hashlib
import random

import pytest

from srd.file_transfer.digests import CHUNK_DIGEST_BYTES, chunk_digest, file_digest
from srd.file_transfer.protocol import FILE_HASHES

BLAKE3_OF_ABC = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"
"""BLAKE3's specification, test_vectors/: of the bytes `abc`."""
XXH3_OF_ABC = "06b05ab6733a618578af5f94892f3950"
"""Of the bytes `abc`, canonical: the reference implementation's `xxhsum -H2`."""


def test_chunk_digest__known() -> None:
    assert chunk_digest([memoryview(b"abc")]).hex() == XXH3_OF_ABC


def test_chunk_digest__pieces() -> None:
    payload = memoryview(random.Random(7).randbytes(10_000))
    whole = chunk_digest([payload])
    assert len(whole) == CHUNK_DIGEST_BYTES
    assert chunk_digest([payload[:1], payload[1:7000], payload[7000:]]) == whole
    assert chunk_digest([payload[:-1]]) != whole


@pytest.mark.parametrize("name", FILE_HASHES)
def test_file_digest__known(name: str) -> None:
    digest = file_digest(name)
    for piece in (b"a", b"", b"bc"):
        digest.update(memoryview(piece))
    expected = {"blake3": BLAKE3_OF_ABC, "sha256": hashlib.sha256(b"abc").hexdigest()}
    assert (digest.name, digest.hexdigest()) == (name, expected[name])
