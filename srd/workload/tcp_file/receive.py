"""The receiving half of the TCP tool: one file into one directory, hashed as it arrives.

The file is written under a temporary name and renamed when its SHA-256 equals the sender's. Progress lines continue
while nothing arrives, so that a stall is visible as equal byte counts.
"""

from __future__ import annotations

import hashlib
import socket
import time
from pathlib import Path
from typing import BinaryIO, Final

from netns.base.output import emit
from srd.workload.tcp_file.errors import TransferError
from srd.workload.tcp_file.header import Header, Verification, receive_header, send_record
from srd.workload.tcp_file.meter import PROGRESS_INTERVAL_S, Meter

_READ_BYTES: Final = 1 << 20


def receive_file(listener: socket.socket, *, directory: Path) -> None:
    """Accept one connection on the bound `listener` and receive one file into `directory`; emit events.

    Raises TransferError when what arrives is not what was announced; then `directory` is unchanged.
    """
    listener.listen(1)
    address, port = listener.getsockname()
    emit("listening", address=address, port=port)
    connection, _ = listener.accept()
    with connection:
        header = receive_header(connection)
        meter = Meter()
        digest = _store(connection, header, directory=directory, meter=meter)
        seconds = meter.seconds(now=time.monotonic())
        send_record(connection, Verification(sha256=digest, sha256_ok=digest == header.sha256))
    if digest != header.sha256:
        raise TransferError(f"{header.name}: SHA-256 is {digest}, the sender announced {header.sha256}")
    emit(
        "received",
        name=header.name,
        bytes=meter.byte_count,
        seconds=round(seconds, 6),
        hash="sha256",
        digest=digest,
        longest_stall_ms=round(1000 * meter.longest_stall_s, 3),
        path=str(directory / header.name),
    )


def _store(connection: socket.socket, header: Header, *, directory: Path, meter: Meter) -> str:
    """Receive the file, rename it if it is correct, and return its SHA-256."""
    temporary = directory / f".{header.name}.part"
    try:
        with temporary.open("wb", buffering=0) as file:
            digest = _copy(connection, file, byte_count=header.byte_count, meter=meter)
        if digest == header.sha256:
            temporary.replace(directory / header.name)
    except OSError as error:
        raise TransferError(f"{directory}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return digest


def _copy(connection: socket.socket, file: BinaryIO, *, byte_count: int, meter: Meter) -> str:
    """Copy `byte_count` bytes from `connection` to `file`, and hash them; return the SHA-256."""
    connection.settimeout(PROGRESS_INTERVAL_S)
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_READ_BYTES))
    while meter.byte_count < byte_count:
        try:
            count = connection.recv_into(buffer[: min(_READ_BYTES, byte_count - meter.byte_count)])
        except TimeoutError:
            _report(meter)
            continue
        if count == 0:
            raise TransferError(f"the sender closed the connection after {meter.byte_count} of {byte_count} bytes")
        meter.arrived(count, now=time.monotonic())
        file.write(buffer[:count])
        digest.update(buffer[:count])
        _report(meter)
    connection.settimeout(None)
    return digest.hexdigest()


def _report(meter: Meter) -> None:
    now = time.monotonic()
    if meter.progress_due(now=now):
        emit("progress", seconds=round(meter.seconds(now=now), 4), bytes=meter.byte_count)
