"""The messages of a file transfer. A peer transfers one file at a time; the immediate is the kind of a message.

    sender                                  receiver
    OFFER name, size, chunk_bytes,
          transfer, retry_for_s,
          files_left, file_hash    ------>
                                   <------  ACCEPT chunks, or REFUSE reason, again
    chunk `chunks` .. n-1          ------>  in any order; each is written at its offset as it arrives
    HASHES first, digests          ------>  of chunks that were sent or will be at once
    END digest                     ------>
                                   <------  VERDICT digest, or reason   once hashed, synced and renamed
    ABORT reason, again            ------>  instead of END: the sender ends the transfer

A chunk's immediate is its index. A control message's immediate has the top bit set, and its body is a JSON object.

`transfer` is a random number that the sender chooses for each file. A sender that loses its peer connects again and
offers the same transfer again; `chunks` of ACCEPT is the number of leading chunks that the receiver still has. HASHES
has the digests of successive chunks from `first` on, of every chunk that is sent: xxh3-128 in hex (the canonical,
big-endian form). The digest in END is that of the whole file, by `file_hash`: blake3 or sha256. With `again` the same
transfer may be offered again. `files_left` is how many files the sender will offer after this one: with 0 it is done.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, TypeGuard

from srd.errors import SrdError
from srd.printable import printable

CONTROL_MESSAGE = 1 << 31
"""Immediate of a control message; smaller values are chunk indices."""
MAX_CONTROL_BYTES = 16 << 10
"""Longest control message; a longer one is invalid."""
CHUNK_BYTES = 1 << 20
"""One message. Large enough to make the cost per message negligible, small enough that 16 of them fill the sender's
window."""
MAX_TEXT = 1000
"""Characters of a text in a control message: at most 12 bytes each when escaped. Names are shorter; reasons may be
truncated."""
MAX_NAME_BYTES = 255
"""NAME_MAX of Linux file systems."""
MAX_DIGESTS = 256
"""Digests in a HASHES: 9 KiB."""
MAX_RETRY_S = 24 * 3600
"""Longest time that a receiver keeps a partial file for a sender that may retry: one day."""
FILE_HASHES = ("blake3", "sha256")
"""Names of the hashes of a file; the first is the default. BLAKE3 is a tree, and 4 times as fast as SHA-256 here."""
_TRANSFER = re.compile(r"[0-9a-f]{32}")
_DIGEST = _TRANSFER


class TransferError(SrdError):
    """A transfer failed; the message is one line with the reason."""


class TransferInterruptedError(TransferError):
    """An attempt failed; the same transfer may be offered again, and resumes where it stopped."""


def reason_of(message: dict[str, Any], *, default: str) -> str:
    """Return the other end's reason as one line that is safe to print."""
    return printable(str(message.get("reason", default))[:MAX_TEXT])


@dataclass(frozen=True, slots=True)
class Offer:
    """The sender's description of a file."""

    name: str
    size: int
    chunk_bytes: int
    transfer: str
    """Id of the transfer, 32 hexadecimal digits: unique, and the same for every attempt."""
    retry_for_s: int = 0
    """How long the sender retries after a loss; 0: it does not, and the receiver keeps no partial file."""
    files_left: int = 0
    """How many files the sender will offer after this one."""
    file_hash: str = FILE_HASHES[0]
    """Of the whole file."""

    @property
    def chunks(self) -> int:
        """Number of chunks; an empty file has none."""
        return -(-self.size // self.chunk_bytes)


def encode(kind: str, **fields: object) -> bytes:
    """Return the body of a control message."""
    cut = {key: value[:MAX_TEXT] if isinstance(value, str) else value for key, value in fields.items()}
    return json.dumps({"kind": kind, **cut}).encode()


def decode_untrusted(body: bytes) -> dict[str, Any]:
    """Decode a control message. Raises TransferError, and nothing else."""
    if len(body) > MAX_CONTROL_BYTES:
        raise TransferError(f"a message of {len(body)} bytes is longer than {MAX_CONTROL_BYTES}")
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise TransferError("a message that is no JSON") from error
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise TransferError("a message without a kind")
    return message


def offer_untrusted(message: dict[str, Any]) -> Offer:
    """Validate an OFFER. Raises TransferError, and nothing else; a name with a directory part is an error."""
    if message["kind"] != "offer":
        raise TransferError(f"{message['kind'][:80]!r} where an offer was expected")
    name, size, chunk_bytes = message.get("name"), message.get("size"), message.get("chunk_bytes")
    if not isinstance(name, str) or not _is_number(size) or not _is_number(chunk_bytes):
        raise TransferError("an offer without name, size and chunk_bytes")
    transfer, retry_for_s = message.get("transfer"), message.get("retry_for_s")
    if not isinstance(transfer, str) or not _TRANSFER.fullmatch(transfer) or not _is_number(retry_for_s):
        raise TransferError("an offer without transfer and retry_for_s")
    files_left = message.get("files_left")
    if not _is_number(files_left) or files_left < 0:
        raise TransferError("an offer without files_left")
    file_hash = message.get("file_hash", FILE_HASHES[0])
    if file_hash not in FILE_HASHES:
        raise TransferError(f"an offer with a hash other than {', '.join(FILE_HASHES)}")
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise TransferError("a name that is no text") from error
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(encoded) > MAX_NAME_BYTES:
        raise TransferError(f"name {name[:80]!r} is not a plain file name")
    if not 0 <= size < 1 << 62 or not 1 << 10 <= chunk_bytes <= 1 << 24:
        raise TransferError(f"an offer of {size} bytes in chunks of {chunk_bytes} is out of range")
    kept_s = max(0, min(retry_for_s, MAX_RETRY_S))
    offer = Offer(name, size, chunk_bytes, transfer, retry_for_s=kept_s, files_left=files_left, file_hash=file_hash)
    if offer.chunks >= CONTROL_MESSAGE:
        raise TransferError(f"an offer of {offer.chunks} chunks is out of range")
    return offer


def digests_untrusted(message: dict[str, Any]) -> tuple[int, list[bytes]]:
    """Return `first` and the digests of HASHES. Raises TransferError, and nothing else."""
    first, digests = message.get("first"), message.get("digests")
    if not _is_number(first) or not isinstance(digests, list) or len(digests) > MAX_DIGESTS:
        raise TransferError(f"hashes without first and at most {MAX_DIGESTS} digests")
    if not all(isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in digests):
        raise TransferError("hashes with a digest that is none")
    return first, [bytes.fromhex(digest) for digest in digests]


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
