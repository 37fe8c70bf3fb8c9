"""The messages of a file transfer: any number of files over one peer, many of them in flight at a time.

    sender                                    receiver
    OFFER files: name, size, transfer ...  ------>
                                           <------  ANSWER files: accepted from chunk k on, or refused
    chunk first + k .. first + n - 1       ------>  in any order; each is written at its offset as it arrives
    HASHES first, digests                  ------>  of chunks that were sent or will be at once
    END files: digest                      ------>
                                           <------  ANSWER files: digest   once hashed, synced and renamed; or a reason

A session numbers its files 0, 1, 2 ... in the order in which they are offered, and their chunks through: file i owns
the `chunks` numbers from `first` on, which follow those of file i - 1. A chunk's immediate is its number, so it needs
no header. A control message's immediate has the top bit set, and its body is a JSON object with the `kind`, and with
`files`, a list with an entry for each file. Messages arrive in any order, but a sender sends an OFFER only when the
one before has been delivered, and END and chunks only after ANSWER.

| message | entry for each file | other fields |
|---|---|---|
| OFFER | `name`, `size`, `transfer`, `mode`, `mtime_ns`, `if_differs`, | `sender`, `chunk_bytes`, `retry_for_s`, |
| | `data_bytes`, | `files_left`, `bytes_left`, `file_hash` |
| | or `name`, `directory`, `mode`, `mtime_ns` | |
| | or `pipe`, `transfer`, `name` if it has one | |
| ANSWER | `file`, and one of `chunks` and `beyond` (accepted) and `in_order`, `digest` | |
| | (verified), `made` (a directory), `has` and `taken` (see below), | |
| | `reason` and `again` | |
| HASHES | | `first`, `digests` |
| HOLES | | `first`, `chunks` |
| END | `file`, and `digest` and for a pipe `chunks`, or `reason` and `again` | |
| REFUSE | no file of this session is received | `reason`, `again` |
| ABORT | the sender ends all files that are not verified | `reason`, `again` |

`transfer` is a number of the file that the sender chooses, the same in every attempt, and `sender` one of its process.
A sender that loses its peer connects again and offers what was not verified; `chunks` of ANSWER is the number of
leading chunks that the receiver still has, and `beyond` are ranges of chunks that it has behind a missing one: pairs of
first and number, in order. HASHES has the digests of successive chunks from number `first` on, xxh3-128 in hex (the
canonical, big-endian form), for every chunk that is sent of a file with more than one. The digest in END is that of the
whole file, by `file_hash`: blake3 or sha256. With `again` the same transfer may be offered again.

A file with `data_bytes` has holes, and so many bytes beside them. Successive chunks that lie in a hole are not sent:
HOLES says their first and their number, in the place of both the chunks and their digests.

With `if_differs` in an entry of an OFFER, a receiver that has a file of this name and size answers with `has`, its
hash. The sender then ends with the same hash, and no chunk is sent; or with another one, and the receiver answers as it
would have without.

A pipe is a file whose size is not known at its offer. It is the last one of its session, and owns all chunk numbers
from its first on; the `chunks` of its END say how many it has. A chunk of it has from 1 to `chunk_bytes` bytes. What a
receiver takes in order, as it does a pipe, and any file that goes to standard output, has `in_order` in its answer. Of
such a file every chunk has its digest in HASHES, also an only one, and the receiver says with `taken` how many leading
chunks it has compared and written. A sender sends chunks below taken + PIPE_WINDOW only, which bounds what the receiver
keeps for a consumer that is slow or a chunk that is missing; and it keeps what is not taken, to send it again.

`files_left` is how many files the sender will offer after this message, and `bytes_left` their size. When it is 0 and
every file has its last answer, the sender is done. A sender has at most MAX_FILES files without a last answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from netns.base.printable import printable
from srd.file_transfer.errors import TransferError, TransferInterruptedError

MAX_NAME_BYTES = 255
"""NAME_MAX of Linux file systems, for each component."""
MAX_PATH_BYTES = 4095
"""PATH_MAX of Linux, without the NUL."""
OWN_PREFIX = ".srd-"
"""Of the receiver's own files in its directory (leftovers.py): nothing that is sent may be one, or look like one."""
MAX_DEPTH = 64
"""Components of a path. The receiver opens one directory for each; trees that people send are less deep."""


def path_untrusted(name: str) -> tuple[str, ...]:
    """Return the components of a relative POSIX path: none of them empty, ".", "..", or longer than NAME_MAX.

    The first one is none of the receiver's own. Raises TransferError, and nothing else.
    """
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise TransferError("a name that is no text") from error
    components = tuple(name.split("/"))
    if len(encoded) > MAX_PATH_BYTES or len(components) > MAX_DEPTH or not all(map(_is_component, components)):
        raise TransferError(f"name {name[:80]!r} is no path below the receiver's directory")
    if components[0].startswith(OWN_PREFIX):
        raise TransferError(f"name {name[:80]!r} is like that of the receiver's own files; rename it")
    return components


def _is_component(component: str) -> bool:
    is_plain = component not in ("", ".", "..") and "\0" not in component
    return is_plain and len(component.encode()) <= MAX_NAME_BYTES


CONTROL_MESSAGE = 1 << 31
"""Immediate of a control message; smaller values are chunk numbers."""
MAX_CONTROL_BYTES = 32 << 10
"""Longest control message; a longer one is invalid. A path of MAX_PATH_BYTES control characters fits, escaped."""
CHUNK_BYTES = 1 << 20
"""One message. Large enough to make the cost per message negligible, small enough that 16 of them fill the sender's
window."""
MAX_PIPE_CHUNKS = CONTROL_MESSAGE
"""At most: the numbers that there are."""
MAX_FILES = 64
"""Files in flight in a session: offered, and without a last answer. Enough to hide the round trips of small files
(two each), few enough that their descriptors are no matter."""
MAX_TEXT = 1000
"""Characters of a text in a control message other than a name: at most 12 bytes each when escaped. Reasons may be
truncated."""
MAX_DIGESTS = 256
"""Digests in a HASHES: 9 KiB."""
PIPE_WINDOW = 24
"""Chunks beyond those that are taken: less than a receive window has by default, so that no request waits for credit,
and ends, because the consumer pauses."""
STANDARD_STREAM = "-"
"""Name of a pipe without one."""
MAX_RANGES = 100
"""Ranges of chunks in an entry of ANSWER: what is behind them is sent again."""
FILE_HASHES = ("blake3", "sha256")
"""Names of the hashes of a file; the first is the default. BLAKE3 is a tree, and 4 times as fast as SHA-256 here."""
MAX_RETRY_S = 24 * 3600
"""Longest time that a receiver keeps a partial file for a sender that may retry: one day."""
MODE_BITS = 0o777
"""Permission bits; neither setuid, setgid nor sticky is sent or accepted."""
MAX_TIME_NS = ((1 << 63) - 1) * 1_000_000_000
"""Latest time that a system call takes, 64 bits of seconds; file systems store less, and take the nearest."""
_ID = re.compile(r"[0-9a-f]{32}")
_DIGEST = _ID
_MAX_ENTRIES_BYTES = MAX_CONTROL_BYTES - 512
"""For the entries of a batch; the rest is for the other fields."""


def reason_of(message: dict[str, Any], *, default: str) -> str:
    """Return the other end's reason as one line that is safe to print."""
    return printable(str(message.get("reason", default))[:MAX_TEXT])


def refusal(message: dict[str, Any], *, default: str) -> TransferError:
    """Return the error for a message or an entry with a reason: with `again`, one that another attempt may avoid."""
    kind = TransferInterruptedError if message.get("again") is True else TransferError
    return kind(reason_of(message, default=default))


@dataclass(frozen=True, slots=True)
class Offer:
    """The sender's description of a file or a directory."""

    name: str
    """Relative path."""
    size: int
    chunk_bytes: int
    transfer: str
    """Id of the transfer, 32 hexadecimal digits: unique, and the same for every attempt. Empty for a directory."""
    retry_for_s: int = 0
    """How long the sender retries after a loss; 0: it does not, and the receiver keeps no partial file."""
    mode: int | None = None
    """Permission bits; None: those of the receiver's umask."""
    mtime_ns: int | None = None
    """Time of the last modification, since 1970; None: now."""
    refusal: str = ""
    """Why this one is refused, if it is: what was offered of it has no meaning here. The others are not concerned."""
    if_differs: bool = False
    """Whether the receiver shall answer with the hash of the file that it has under this name."""
    is_directory: bool = False
    data_bytes: int | None = None
    """Bytes beside the holes, at most `size`; None: it has none."""
    is_pipe: bool = False
    """Whether its size is not known yet: `size` is 0."""
    file_hash: str = FILE_HASHES[0]
    """Of the whole file."""
    sender: str = ""
    """Id of the sending process, 32 hexadecimal digits."""

    @property
    def chunks(self) -> int:
        """Number of chunks; an empty file has none. Of a pipe the most that it may have."""
        return MAX_PIPE_CHUNKS if self.is_pipe else -(-self.size // self.chunk_bytes)

    @property
    def has_chunk_digests(self) -> bool:
        """Whether the sender sends the digests of chunks: that of a single chunk would say what the file's does."""
        return self.chunks > 1


@dataclass(frozen=True, slots=True)
class Offers:
    """An OFFER."""

    offers: tuple[Offer, ...]
    files_left: int
    bytes_left: int

    @property
    def total_bytes(self) -> int | None:
        """Bytes of these files and of those that will be offered later; None with a pipe."""
        if any(offer.is_pipe for offer in self.offers):
            return None
        return sum(offer.size for offer in self.offers) + self.bytes_left


def encode(kind: str, **fields: object) -> bytes:
    """Return the body of a control message."""
    return _json({"kind": kind, **_cut(fields)})


def entry(**fields: object) -> dict[str, object]:
    """Return an entry of `files` without the fields that are None; texts other than names are truncated."""
    return _cut({key: value for key, value in fields.items() if value is not None})


def batches(entries: Iterable[dict[str, object]]) -> Iterator[list[dict[str, object]]]:
    """Split entries into lists for one control message each."""
    batch: list[dict[str, object]] = []
    size_bytes = 0
    for each in entries:
        each_bytes = len(_json(each)) + 2
        if batch and (size_bytes + each_bytes > _MAX_ENTRIES_BYTES or len(batch) == MAX_FILES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(each)
        size_bytes += each_bytes
    if batch:
        yield batch


def _cut(fields: dict[str, object]) -> dict[str, object]:
    return {
        key: value[:MAX_TEXT] if isinstance(value, str) and key != "name" else value for key, value in fields.items()
    }


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


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


def entries_untrusted(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of ANSWER or END, each with its `file`'s number. Raises TransferError, and nothing else."""
    files = message.get("files")
    if not isinstance(files, list) or len(files) > MAX_FILES:
        raise TransferError(f"{message['kind'][:80]!r} without a list of at most {MAX_FILES} files")
    for each in files:
        if not isinstance(each, dict) or not _is_count(each.get("file")):
            raise TransferError(f"{message['kind'][:80]!r} with an entry without a file")
    return files


def offers_untrusted(message: dict[str, Any]) -> Offers:
    """Validate an OFFER. Raises TransferError, and nothing else; a name that leaves the directory is an error."""
    if message["kind"] != "offer":
        raise TransferError(f"{message['kind'][:80]!r} where an offer was expected")
    files, chunk_bytes, retry_for_s = message.get("files"), message.get("chunk_bytes"), message.get("retry_for_s")
    if not isinstance(files, list) or len(files) > MAX_FILES:
        raise TransferError(f"an offer without a list of at most {MAX_FILES} files")
    if not _is_number(chunk_bytes) or not 1 << 10 <= chunk_bytes <= 1 << 24:
        raise TransferError("an offer without chunk_bytes from 1 KiB to 16 MiB")
    if not _is_number(retry_for_s):
        raise TransferError("an offer without retry_for_s")
    files_left, bytes_left = message.get("files_left"), message.get("bytes_left")
    if not _is_count(files_left) or not _is_count(bytes_left):
        raise TransferError("an offer without files_left and bytes_left")
    if not isinstance(sender := message.get("sender"), str) or not _ID.fullmatch(sender):
        raise TransferError("an offer without sender")
    file_hash = message.get("file_hash", FILE_HASHES[0])
    if file_hash not in FILE_HASHES:
        raise TransferError(f"an offer with a hash other than {', '.join(FILE_HASHES)}")
    kept_s = max(0, min(retry_for_s, MAX_RETRY_S))
    common = Offer("", 0, chunk_bytes, "", retry_for_s=kept_s, file_hash=file_hash, sender=sender)
    offers = tuple(_offer_untrusted(each, common=common) for each in files)
    if any(offer.is_pipe for offer in offers[:-1]) or (files_left and offers and offers[-1].is_pipe):
        raise TransferError("an offer with a file after a pipe")
    return Offers(offers, files_left, bytes_left)


def _offer_untrusted(fields: object, *, common: Offer) -> Offer:
    if isinstance(fields, dict) and fields.get("pipe") is True:
        fields = {"name": STANDARD_STREAM, "size": 0, **fields}
    if not isinstance(fields, dict) or not isinstance(name := fields.get("name"), str):
        raise TransferError("an offer without a name")
    path_untrusted(name)
    mode, mtime_ns = fields.get("mode"), fields.get("mtime_ns")
    if reason := _odd(mode, mtime_ns):
        common, mode, mtime_ns = replace(common, refusal=f"{name[:80]!r}: {reason}"), None, None
    if fields.get("directory") is True:
        return replace(common, name=name, mode=mode, mtime_ns=mtime_ns, is_directory=True)
    size, transfer = fields.get("size"), fields.get("transfer")
    if not _is_number(size) or not isinstance(transfer, str) or not _ID.fullmatch(transfer):
        raise TransferError(f"{name[:80]!r}: an offer without size and transfer")
    if not 0 <= size < 1 << 62:
        raise TransferError(f"an offer of {size} bytes is out of range")
    offer = replace(
        common,
        name=name,
        size=size,
        transfer=transfer,
        mode=mode,
        mtime_ns=mtime_ns,
        if_differs=fields.get("if_differs") is True,
    )
    if fields.get("pipe") is True:
        return replace(offer, size=0, mode=None, mtime_ns=None, if_differs=False, is_pipe=True)
    if offer.chunks >= CONTROL_MESSAGE:
        raise TransferError(f"an offer of {offer.chunks} chunks is out of range")
    return _with_holes_untrusted(offer, fields.get("data_bytes"))


def _odd(mode: object, mtime_ns: object) -> str:
    """Return what is wrong with a mode and a time, which may be absent; empty if nothing is."""
    if mode is not None and not (_is_number(mode) and 0 <= mode <= MODE_BITS):
        return "its mode is not of permission bits only"
    if mtime_ns is not None and not (_is_number(mtime_ns) and -MAX_TIME_NS <= mtime_ns <= MAX_TIME_NS):
        return "its time of modification is not of 64 bits of seconds"
    return ""


def _with_holes_untrusted(offer: Offer, data_bytes: object) -> Offer:
    if data_bytes is None:
        return offer
    if not _is_count(data_bytes):
        raise TransferError(f"{offer.name[:80]!r}: data_bytes is no number")
    return replace(offer, data_bytes=min(data_bytes, offer.size))


def digests_untrusted(message: dict[str, Any]) -> tuple[int, list[bytes]]:
    """Return `first` and the digests of HASHES. Raises TransferError, and nothing else."""
    first, digests = message.get("first"), message.get("digests")
    if not _is_count(first) or not isinstance(digests, list) or len(digests) > MAX_DIGESTS:
        raise TransferError(f"hashes without first and at most {MAX_DIGESTS} digests")
    if not all(isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in digests):
        raise TransferError("hashes with a digest that is none")
    return first, [bytes.fromhex(digest) for digest in digests]


def holes_untrusted(message: dict[str, Any]) -> tuple[int, int]:
    """Return `first` and `chunks` of HOLES. Raises TransferError, and nothing else."""
    first, chunks = message.get("first"), message.get("chunks")
    if not _is_count(first) or not _is_count(chunks) or not chunks or first + chunks > CONTROL_MESSAGE:
        raise TransferError("holes without first and chunks")
    return first, chunks


def ranges_untrusted(value: object, *, first: int, end: int) -> list[tuple[int, int]]:
    """Return ranges of chunks, pairs of first and number, that lie in order from `first` to before `end`.

    Raises TransferError, and nothing else.
    """
    if not isinstance(value, list) or len(value) > MAX_RANGES:
        raise TransferError(f"no list of at most {MAX_RANGES} ranges of chunks")
    ranges = list[tuple[int, int]]()
    for each in value:
        if not (isinstance(each, list) and len(each) == 2 and all(map(_is_count, each))):
            raise TransferError("a range of chunks that is none")
        start, count = each
        if start < first or not count or start + count > end:
            raise TransferError("ranges of chunks that are not in order, or not of the file")
        ranges.append((start, count))
        first = start + count
    return ranges


def pipe_chunks_untrusted(end: dict[str, Any]) -> int:
    """Return the number of chunks in the END of a pipe. Raises TransferError, and nothing else."""
    chunks = end.get("chunks")
    if not _is_count(chunks) or chunks > MAX_PIPE_CHUNKS:
        raise TransferError(f"the end of file {end['file']}, a pipe, without its chunks")
    return chunks


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> TypeGuard[int]:
    return _is_number(value) and 0 <= value < 1 << 62
