"""The sending half of the TCP tool: sendfile, then wait for the receiver's verification result.

The measured time is from connect() to the verification result. The file is hashed before, so that the time includes
only the transfer. When stopped, the socket has SO_LINGER 0, so that a connection over a failed path sends nothing more
during the next measurement.
"""

from __future__ import annotations

import hashlib
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from netns.base.output import emit
from srd.perf.tcp_info import Sent, sent_by
from srd.workload.tcp_file.errors import TransferError
from srd.workload.tcp_file.header import Header, receive_verification, send_record

_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


class Stopped(BaseException):
    """Raised by the signal handler to stop and report. A BaseException, so that no handler swallows it."""


@dataclass(frozen=True, slots=True)
class Source:
    """The file to send."""

    path: Path
    """Where it is."""

    byte_count: int
    """Its size."""

    sha256: str
    """Its SHA-256, in hex."""


def read_source(path: Path) -> Source:
    """Hash the file at `path`. Raises TransferError if it cannot be read."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return Source(path=path, byte_count=file.tell(), sha256=digest)
    except OSError as error:
        raise TransferError(f"{path}: {error.strerror}") from None


def send_file(sock: socket.socket, source: Source, *, host: str, port: int) -> None:
    """Send `source` through the unconnected `sock` and report it in one event: `sent`, or `stopped`.

    Raises TransferError when the receiver cannot be reached or did not get every byte.
    """
    started_at = time.monotonic()
    try:
        sock.connect((host, port))
        send_record(sock, Header(name=source.path.name, byte_count=source.byte_count, sha256=source.sha256))
        with source.path.open("rb") as file:
            sock.sendfile(file)
        verification = receive_verification(sock)
    except OSError as error:
        raise TransferError(f"{host}:{port}: {error.strerror or error}") from None
    except Stopped:
        emit("stopped", **_account(sent_by(sock)))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        return
    seconds = time.monotonic() - started_at
    account = _account(sent_by(sock))
    if not verification.sha256_ok:
        raise TransferError(f"{source.path.name}: the receiver got other bytes, SHA-256 {verification.sha256}")
    emit(
        "sent",
        bytes=source.byte_count,
        seconds=round(seconds, 6),
        goodput_bps=round(8 * source.byte_count / seconds),
        hash="sha256",
        digest=source.sha256,
        verified=True,
        **account,
    )


def _account(sent: Sent) -> dict[str, object]:
    subflows = [list(pair) for pair in zip(sent.local_addresses, sent.remote_addresses, strict=True)]
    return {"retransmitted_fraction": round(sent.retransmitted_fraction, 6), "subflows": subflows}
