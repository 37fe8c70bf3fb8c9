"""What `srd send FILE DIRECTORY ...` sends: files, and the trees below directories, each under its last component.

Links below a directory are not followed, and neither they nor sockets, pipes and devices are sent. Blocking.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from srd.file_transfer.errors import TransferError
from srd.file_transfer.outgoing import OutgoingFile
from srd.file_transfer.protocol import path_untrusted

_KINDS = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


@dataclass(slots=True)
class Listing:
    """What was found."""

    files: list[OutgoingFile] = field(default_factory=list)
    """Files in the order of their names, then directories, each behind those that it contains."""
    skipped: list[tuple[Path, str]] = field(default_factory=list)
    """What is not sent, and what it is."""
    failed: list[tuple[Path, str]] = field(default_factory=list)
    """What should be sent and cannot be, with the reason."""


def list_all(paths: Iterable[Path], *, secret: bytes) -> Listing:
    """List files and trees. `secret` goes into the ids of transfers, so that nobody else can name one."""
    listing, directories = Listing(), list[OutgoingFile]()
    for path in paths:
        name = path.name if path.name not in ("", "..") else path.resolve().name
        for found, below in _walk(path, name, listing):
            (directories if stat.S_ISDIR(found.st_mode) else listing.files).append(_outgoing(found, *below, secret))
    listing.files += reversed(directories)
    return listing


def _walk(path: Path, name: str, listing: Listing) -> Iterator[tuple[os.stat_result, tuple[Path, str]]]:
    """Yield files and directories, each before what it contains, and note all else."""
    waiting = [(path, name)]
    while waiting:
        path, name = waiting.pop()
        try:
            path_untrusted(name)
            found = path.stat() if "/" not in name else path.lstat()  # a link is followed if it was named
            is_directory = stat.S_ISDIR(found.st_mode)
            inner = sorted(os.listdir(path), reverse=True) if is_directory else []  # noqa: PTH208 - names, not paths
        except OSError as error:
            listing.failed.append((path, f"cannot be read: {error.strerror}"))
            continue
        except TransferError as error:
            listing.failed.append((path, str(error)))
            continue
        if is_directory or stat.S_ISREG(found.st_mode):
            yield found, (path, name)
            waiting += [(path / each, f"{name}/{each}") for each in inner]
        else:
            listing.skipped.append((path, _KINDS.get(stat.S_IFMT(found.st_mode), "a device")))


def _outgoing(found: os.stat_result, path: Path, name: str, secret: bytes) -> OutgoingFile:
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISDIR(found.st_mode):
        return OutgoingFile(path, name, mode=mode, mtime_ns=found.st_mtime_ns)
    identity = (os.fspath(path.absolute()), name, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    transfer = hashlib.blake2b(repr(identity).encode(errors="surrogateescape"), digest_size=16, key=secret).hexdigest()
    return OutgoingFile(path, name, found.st_size, mode=mode, mtime_ns=found.st_mtime_ns, transfer=transfer)
