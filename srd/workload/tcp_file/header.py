"""The TCP tool's control messages: a length-prefixed JSON header, and a verification result the same way back.

    sender   -> u32 length, {"name", "bytes", "sha256"}, then the file's bytes
    receiver -> u32 length, {"sha256", "sha256_ok"}

The header comes from the network: everything in it is checked before it is used.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from dataclasses import asdict, dataclass
from typing import Any, Final

from srd.workload.tcp_file.errors import TransferError

_LENGTH: Final = struct.Struct("!I")
_MAX_BYTES: Final = 4096
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Header:
    """The file that follows."""

    name: str
    """Bare file name: no directory, not hidden."""

    byte_count: int
    """Its size."""

    sha256: str
    """Its SHA-256, in hex."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of the receiver's check of the file."""

    sha256: str
    """SHA-256 of what arrived, in hex."""

    sha256_ok: bool
    """Whether it equals that of the header."""


def send_record(sock: socket.socket, record: Header | Verification) -> None:
    """Send one record, whole."""
    text = json.dumps(asdict(record)).encode()
    sock.sendall(_LENGTH.pack(len(text)) + text)


def receive_header(sock: socket.socket) -> Header:
    """Return the header. Raises TransferError for anything else."""
    record = _receive_untrusted(sock)
    name, size, digest = record.get("name"), record.get("byte_count"), record.get("sha256")
    if not isinstance(name, str) or not name or name.startswith(".") or "/" in name or "\0" in name:
        raise TransferError(f"header: {name!r} is not a bare file name")
    if type(size) is not int or size < 0:
        raise TransferError(f"header: {size!r} is not a size")
    return Header(name=name, byte_count=size, sha256=_digest_untrusted(digest))


def receive_verification(sock: socket.socket) -> Verification:
    """Return the verification result. Raises TransferError for anything else."""
    record = _receive_untrusted(sock)
    return Verification(sha256=_digest_untrusted(record.get("sha256")), sha256_ok=record.get("sha256_ok") is True)


def _receive_untrusted(sock: socket.socket) -> dict[str, Any]:
    (length,) = _LENGTH.unpack(_receive_exactly(sock, _LENGTH.size))
    if length > _MAX_BYTES:
        raise TransferError(f"a record of {length} bytes; at most {_MAX_BYTES} are allowed")
    try:
        record = json.loads(_receive_exactly(sock, length))
    except (ValueError, RecursionError):
        raise TransferError("a record that is not JSON") from None
    if not isinstance(record, dict):
        raise TransferError("a record that is not a JSON object")
    return record


def _digest_untrusted(value: object) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise TransferError(f"{value!r} is not a SHA-256")
    return value


def _receive_exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise TransferError(f"the peer closed the connection after {len(data)} of {count} bytes of a record")
        data += part
    return bytes(data)
