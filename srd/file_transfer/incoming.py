"""Files that a session receives, and what is done with several of them in one call of its worker thread.

Small files cost what their calls cost, so that each step (open, write, finish) takes all files that wait for it. What
is verified is synced before it gets its name: each file by itself, or of SYNC_ALL_FROM files and more all at once, with
the rest of their file system (syncfs), which costs one commit of its journal instead of one for each.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from srd.file_transfer.errors import TransferError
from srd.file_transfer.protocol import Offer
from srd.file_transfer.store import FileStore
from srd.message import Message

SYNC_ALL_FROM = 8
"""Files. With fewer, what others have written to the file system would cost more than the commits."""
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(eq=False, slots=True)
class Incoming:
    """A file or a directory that was offered and has no last answer."""

    offer: Offer
    number: int
    first: int
    """Number of its first chunk."""
    store: FileStore | None = None
    """Not for a directory, and not for a file that has arrived in an earlier attempt."""
    missing: int = -1
    """Chunks that are not stored; -1 before it is opened. Of a pipe those of MAX_PIPE_CHUNKS, until its END."""
    unannounced: int = 0
    """Chunks whose digest the sender has not sent."""
    digest: str = ""
    """The sender's, of the file, from END."""
    there: str = ""
    """Hash of the file that lies under this name, if the sender has asked for it."""
    was_compared: bool = False
    taken: int = 0
    """Chunks of what is written in order that the sender knows are."""
    unkept: dict[str, str] = field(default_factory=dict)
    """What the file system does not keep of a directory that was made."""
    has_ended: bool = False
    began_at: float = field(default_factory=time.monotonic)

    @property
    def is_complete(self) -> bool:
        """Whether it can be verified."""
        return self.missing == 0 and self.unannounced == 0 and bool(self.digest)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A chunk in memory."""

    file: Incoming
    index: int
    message: Message


@dataclass(frozen=True, slots=True)
class Announcement:
    """The sender's digests of successive chunks."""

    file: Incoming
    first: int
    digests: list[bytes]


@dataclass(frozen=True, slots=True)
class Hole:
    """Successive chunks that are zeros, and not sent."""

    file: Incoming
    first: int
    chunks: int


def put_all(batch: Sequence[Arrival | Announcement | Hole]) -> dict[Incoming, TransferError]:
    """Write chunks, and compare digests; return the files that failed. Blocking."""
    failed: dict[Incoming, TransferError] = {}
    for each in batch:
        file, store = each.file, each.file.store
        if file in failed or file.has_ended or store is None:
            continue
        try:
            if isinstance(each, Announcement):
                store.announce(each.first, each.digests)
            elif isinstance(each, Hole):
                store.leave_out(each.first, each.chunks)
            else:
                _put(store, each)
        except TransferError as error:
            failed[file] = error
    return failed


def _put(store: FileStore, arrival: Arrival) -> None:
    views = list(arrival.message.views())
    try:
        store.put(arrival.index, views)
    finally:
        views.clear()  # or the memory would stay in use


def finish_all(files: Sequence[Incoming]) -> dict[Incoming, str | TransferError]:
    """Verify, sync and name files; return their hashes, or why they failed. Blocking."""
    outcomes: dict[Incoming, str | TransferError] = {}
    stores: dict[Incoming, FileStore] = {}
    for file in files:
        store = file.store
        if store is None:
            raise ValueError(f"{file.offer.name}: was not opened")
        try:
            outcomes[file] = store.verify(digest=file.digest)
            stores[file] = store
        except TransferError as error:
            outcomes[file] = error
    is_synced = len(stores) >= SYNC_ALL_FROM and _sync_file_systems(list(stores.values()))
    directories: dict[tuple[int, int], FileStore] = {}
    for file, store in stores.items():
        try:
            store.publish(sync=not is_synced)
            directories[store.directory()] = store
        except TransferError as error:
            outcomes[file] = error
    for store in directories.values():
        try:
            store.sync_directory()
        except TransferError as error:
            outcomes.update({file: error for file, each in stores.items() if each.directory() == store.directory()})
    for file in files:
        if file.store is not None:
            file.store.abort()
    return outcomes


def _sync_file_systems(stores: Sequence[FileStore]) -> bool:
    """Sync the file systems that files lie on; return whether that succeeded."""
    one_of_each = dict(store.file_system() for store in stores)
    return all(_libc.syncfs(fd) == 0 for fd in one_of_each.values())
