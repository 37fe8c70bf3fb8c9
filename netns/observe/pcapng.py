"""Write pcapng files for Wireshark, block by block, with interface names, nanoseconds and drops.

Source: IETF draft-ietf-opsawg-pcapng, sections 4.1 (section header), 4.2 (interface description), 4.3 (enhanced packet)
and 4.5 (interface statistics).

A file is created. An existing one is replaced only on request, and only if this class wrote it: the author of a
topology that root builds must not choose which files are lost. Links are not followed.

Each block is written completely or not at all: when the disk is full, the file is truncated to its last complete block.

"-" is the standard output, for a pipe to tshark: each block is written at once, and nothing is truncated there.
"""

from __future__ import annotations

import os
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from netns.errors import BackendError

STDOUT: Final = Path("-")
LINKTYPE_ETHERNET: Final = 1
SNAP_BYTES: Final = 262_144
_BYTE_ORDER: Final = 0x1A2B3C4D
MAKER: Final = b"srd-lab: "
_SECTION, _INTERFACE, _PACKET, _STATISTICS = 0x0A0D0D0A, 1, 6, 5
_END, _COMMENT, _NAME, _RESOLUTION = 0, 1, 2, 9
_RECEIVED, _DROPPED = 4, 5
_NANOSECONDS: Final = bytes([9])


_HEAD: Final = struct.pack("=IIIHHq", _SECTION, 0, _BYTE_ORDER, 1, 0, -1)
"""The beginning of a file, up to the comment's length; the second field is the block length."""


class ReaderGoneError(BackendError):
    """Whoever read the standard output has ended, or reads no more."""


class PcapngFile:
    """A file being written; a context manager. Raises BackendError, in one line, if it cannot be written."""

    def __init__(self, path: Path, *, interfaces: tuple[str, ...], comment: str, overwrite: bool = False) -> None:
        """An interface's number is its index in `interfaces`; the file's header contains MAKER and `comment`."""
        self._path = path
        self.packets = 0
        self.is_pipe = path == STDOUT
        if self.is_pipe:
            self._fd = _standard_output()
        else:
            self._fd = _created(path)[0] if not overwrite else _replaced(path)
        self._size = 0
        try:
            self._describe(interfaces, comment=comment)
        except BackendError:
            os.close(self._fd)
            raise

    def _describe(self, interfaces: tuple[str, ...], *, comment: str) -> None:
        options = _options((_COMMENT, MAKER + comment.encode()))
        self._write(_block(_SECTION, struct.pack("=IHHq", _BYTE_ORDER, 1, 0, -1) + options))
        for name in interfaces:
            options = _options((_NAME, name.encode()), (_RESOLUTION, _NANOSECONDS))
            self._write(_block(_INTERFACE, struct.pack("=HHI", LINKTYPE_ETHERNET, 0, SNAP_BYTES) + options))

    def packet(self, frame: bytes, *, interface: int, at_ns: int, length_bytes: int) -> None:
        """Write one packet; `length_bytes` is its original length, of which `frame` may have less."""
        head = struct.pack("=IIIII", interface, at_ns >> 32, at_ns & 0xFFFFFFFF, len(frame), length_bytes)
        self._write(_block(_PACKET, head + frame + bytes(-len(frame) % 4)))
        self.packets += 1

    def statistics(self, *, interface: int, at_ns: int, received: int, dropped: int) -> None:
        """Write how many packets an interface has received and lost."""
        head = struct.pack("=III", interface, at_ns >> 32, at_ns & 0xFFFFFFFF)
        counts = _options((_RECEIVED, struct.pack("=Q", received)), (_DROPPED, struct.pack("=Q", dropped)))
        self._write(_block(_STATISTICS, head + counts))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def _write(self, block: bytes) -> None:
        written = 0
        try:
            while written < len(block):  # in parts where the disk is nearly full, or a signal arrived
                written += os.write(self._fd, block[written:])
        except BrokenPipeError:
            raise ReaderGoneError(f"the output was closed by its reader after {self.packets} packets") from None
        except OSError as error:
            if not self.is_pipe:
                with suppress(OSError):  # a device cannot be truncated
                    os.ftruncate(self._fd, self._size)
            raise BackendError(
                f"{self._path}: {error.strerror} after {self.packets} packets; the file is whole so far"
            ) from None
        self._size += written

    def fileno(self) -> int:
        """Return the descriptor; of a pipe, POLLERR tells that its reader has gone."""
        return self._fd


def _standard_output() -> int:
    if os.isatty(1):
        raise BackendError("-: the standard output is a terminal; pipe it to a reader, as in: | tshark -r -")
    try:
        return os.dup(1)
    except OSError as error:
        raise BackendError(f"-: the standard output is closed ({error.strerror}); name a file") from None


def check_writable(path: Path, *, overwrite: bool = False) -> None:
    """Raise BackendError unless `path` can become a PcapngFile; nothing is changed."""
    fd, made = _created(path) if not overwrite or not os.path.lexists(path) else (_opened(path), False)
    os.close(fd)
    if made:
        path.unlink()


def _created(path: Path) -> tuple[int, bool]:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), True  # follows no link
    except FileExistsError:
        remedy = "name another, or overwrite an earlier capture (--overwrite, or overwrite: true beside file)"
        raise BackendError(f"{path}: exists already; {remedy}") from None
    except (OSError, ValueError) as error:  # ValueError: an invalid file name
        reason = error.strerror if isinstance(error, OSError) else error
        raise BackendError(f"{path}: {reason}; name a file that can be written") from None


def _replaced(path: Path) -> int:
    if not os.path.lexists(path):
        return _created(path)[0]
    fd = _opened(path)
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _opened(path: Path) -> int:
    """Open an existing file that this class has written."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BackendError(f"{path}: {error.strerror}; name a file that can be written, not a link") from None
    try:
        head = os.read(fd, len(_HEAD) + 4 + len(MAKER)) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        head = b""
    if head[:4] != _HEAD[:4] or not head.endswith(MAKER):
        os.close(fd)
        raise BackendError(f"{path}: is no capture of srd-lab's, so that it is not overwritten; name another file")
    return fd


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("=II", kind, length) + body + struct.pack("=I", length)


def _options(*options: tuple[int, bytes]) -> bytes:
    parts = [struct.pack("=HH", kind, len(value)) + value + bytes(-len(value) % 4) for kind, value in options]
    return b"".join(parts) + struct.pack("=HH", _END, 0)
