"""pcapng files, written block by block: what Wireshark opens, with interfaces' names, nanoseconds and drops.

Source: IETF draft-ietf-opsawg-pcapng, sections 4.1 (section header), 4.2 (interface description), 4.3 (enhanced packet)
and 4.5 (interface statistics).

Each block is written whole or not at all: when the disk is full, the file is cut back to its last whole block.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from netns.errors import FabricError

LINKTYPE_ETHERNET: Final = 1
SNAP_BYTES: Final = 262_144
_BYTE_ORDER: Final = 0x1A2B3C4D
_SECTION, _INTERFACE, _PACKET, _STATISTICS = 0x0A0D0D0A, 1, 6, 5
_END, _COMMENT, _NAME, _RESOLUTION = 0, 1, 2, 9
_RECEIVED, _DROPPED = 4, 5
_NANOSECONDS: Final = bytes([9])


class PcapngFile:
    """A file being written; a context manager. Raises FabricError, in one line, if it cannot be."""

    def __init__(self, path: Path, *, interfaces: tuple[str, ...], comment: str) -> None:
        """The numbers of `interfaces` are their places."""
        self._path = path
        self.packets = 0
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise FabricError(f"{path}: {error.strerror}; name a file that can be written") from None
        self._size = 0
        try:
            self._describe(interfaces, comment=comment)
        except FabricError:
            os.close(self._fd)
            raise

    def _describe(self, interfaces: tuple[str, ...], *, comment: str) -> None:
        self._write(
            _block(_SECTION, struct.pack("=IHHq", _BYTE_ORDER, 1, 0, -1) + _options((_COMMENT, comment.encode())))
        )
        for name in interfaces:
            options = _options((_NAME, name.encode()), (_RESOLUTION, _NANOSECONDS))
            self._write(_block(_INTERFACE, struct.pack("=HHI", LINKTYPE_ETHERNET, 0, SNAP_BYTES) + options))

    def packet(self, frame: bytes, *, interface: int, at_ns: int, length_bytes: int) -> None:
        """One packet; `length_bytes` is its own, which `frame` may have less of."""
        head = struct.pack("=IIIII", interface, at_ns >> 32, at_ns & 0xFFFFFFFF, len(frame), length_bytes)
        self._write(_block(_PACKET, head + frame + bytes(-len(frame) % 4)))
        self.packets += 1

    def statistics(self, *, interface: int, at_ns: int, received: int, dropped: int) -> None:
        """How many packets an interface's recording has seen and lost."""
        head = struct.pack("=III", interface, at_ns >> 32, at_ns & 0xFFFFFFFF)
        counts = _options((_RECEIVED, struct.pack("=Q", received)), (_DROPPED, struct.pack("=Q", dropped)))
        self._write(_block(_STATISTICS, head + counts))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def _write(self, block: bytes) -> None:
        try:
            written = os.write(self._fd, block)
            if written < len(block):  # the disk is filling up: the next call says why
                written += os.write(self._fd, block[written:])
        except OSError as error:
            with suppress(OSError):  # a pipe or a device has no end to cut back to
                os.ftruncate(self._fd, self._size)
            raise FabricError(
                f"{self._path}: {error.strerror} after {self.packets} packets; the file is whole so far"
            ) from None
        self._size += written


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("=II", kind, length) + body + struct.pack("=I", length)


def _options(*options: tuple[int, bytes]) -> bytes:
    parts = [struct.pack("=HH", kind, len(value)) + value + bytes(-len(value) % 4) for kind, value in options]
    return b"".join(parts) + struct.pack("=HH", _END, 0)
