"""What the sessions of a receiver share: the place, and the transfers that are running."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from typing import Protocol

from srd.file_transfer.directory import Directory
from srd.file_transfer.errors import TransferError
from srd.file_transfer.leftovers import Leftover
from srd.file_transfer.protocol import Offer, Offers
from srd.file_transfer.standard_output import StandardOutput
from srd.file_transfer.store import FileStore

MAX_TRANSFERS = 64
"""Senders at a time. Each needs a thread and descriptors; more would not raise the throughput."""
MAX_OPEN_FILES = 256
"""Files that are being written at a time. Each has up to three descriptors of the usual 1,024. Further ones wait, but a
sender may always write one."""
MAX_KEPT = 64
"""What is written in order, and kept for its lost sender: with its descriptors. Of more, the earliest is given up."""
_REMEMBERED = 1024
"""Completed transfers that are remembered, for senders that lost their peer before they received the answer."""


class NotStartedError(TransferError):
    """No transfer was started: no valid offer arrived, or too many senders are served."""


class TransferSession(Protocol):
    """What receives from one peer."""

    ended: asyncio.Event

    def supersede(self) -> None:
        """End, because the sender has opened another peer for the same transfers."""

    def wake(self) -> None:
        """Try again to open files, as there may be room."""


class TransferSessions:
    """State shared by the sessions of a daemon."""

    def __init__(self, place: Directory | StandardOutput, *, max_transfers: int = MAX_TRANSFERS) -> None:
        self.place = place
        self.is_stopped = False
        self._max_transfers = max_transfers
        self._sessions: set[TransferSession] = set()
        self._owners: dict[str, TransferSession] = {}  # by transfer
        self._open_files = 0
        self._arrived: OrderedDict[str, tuple[Offer, str, int]] = OrderedDict()
        # By transfer, with the time of expiry:
        self._kept: OrderedDict[str, tuple[Offer, FileStore, float]] = OrderedDict()

    async def begin(self, session: TransferSession, offers: Offers) -> None:
        """Admit a session, after ending earlier ones of its files. Raises TransferError for what the place refuses.

        Raises NotStartedError for too many sessions.
        """
        self.place.check(offers)
        await self._supersede(session, offers.offers)
        if len(self._sessions) >= self._max_transfers:
            name = f"{offers.offers[0].name}: " if offers.offers else ""
            raise NotStartedError(f"{name}the receiver is busy with {len(self._sessions)} transfers (--max-transfers)")
        self._sessions.add(session)

    def end(self, session: TransferSession) -> None:
        """Remove a session that has ended, and every file of it."""
        self._sessions.discard(session)
        session.ended.set()

    async def claim(self, session: TransferSession, offer: Offer) -> None:
        """Have a transfer for one session. Raises TransferError if it has it already."""
        if self._owners.get(offer.transfer) is session:
            raise TransferError(f"{offer.name}: is offered twice at a time")
        await self._supersede(session, (offer,))
        self._owners[offer.transfer] = session

    async def _supersede(self, session: TransferSession, offers: tuple[Offer, ...]) -> None:
        for offer in offers:
            while (earlier := self._owners.get(offer.transfer)) is not None and earlier is not session:
                earlier.supersede()
                await earlier.ended.wait()

    def yield_claim(self, offer: Offer) -> None:
        """Give a transfer up that has ended."""
        self._owners.pop(offer.transfer, None)

    def take_room(self, *, has_none: bool) -> bool:
        """Count a file that is to be opened, if it may be. `has_none`: its session has no other file open."""
        if self._open_files >= MAX_OPEN_FILES and not has_none:
            return False
        self._open_files += 1
        return True

    def give_room(self) -> None:
        """Count a file as closed."""
        self._open_files -= 1
        for session in self._sessions:
            session.wake()

    def store(self, offer: Offer, *, stop: threading.Event) -> FileStore:
        """Return what a file is received into: what was kept of it, or a new one. Raises TransferError."""
        kept, store, _ = self._kept.get(offer.transfer, (None, None, 0.0))
        if kept is None or store is None or not _is_same(kept, offer):
            return self.place.store(offer, stop=stop)
        del self._kept[offer.transfer]
        return store

    def keep(self, offer: Offer, store: FileStore) -> None:
        """Keep what is written in order for its sender, as long as that tries."""
        self._kept[offer.transfer] = (offer, store, time.monotonic() + offer.retry_for_s)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)[1][1].abort()

    async def expire(self, transfer: str) -> Leftover | None:
        """Remove what is left of a transfer if its time is over; return it, or None. Raises OSError."""
        offer, store, expires_at = self._kept.get(transfer, (None, None, 0.0))
        if offer is None or store is None:
            return await asyncio.to_thread(self.place.expire, transfer)
        if time.monotonic() < expires_at:
            return None
        del self._kept[transfer]
        store.abort()
        return Leftover(transfer, offer.name, 0.0)

    def note_arrival(self, offer: Offer, digest: str, *, chunks: int) -> None:
        """Remember a completed transfer."""
        self._arrived[offer.transfer] = (offer, digest, chunks)
        if len(self._arrived) > _REMEMBERED:
            self._arrived.popitem(last=False)

    def arrived(self, offer: Offer) -> tuple[str, int] | None:
        """Return hash and chunks of the file if this transfer has completed already."""
        known, digest, chunks = self._arrived.get(offer.transfer, (None, "", 0))
        return (digest, chunks) if known is not None and _is_same(known, offer) else None

    def stop(self) -> None:
        """Have no thread wait any longer for a consumer: the process ends."""
        self.is_stopped = True
        self.place.stop()

    def close(self) -> None:
        """Remove what is kept; every peer must have ended."""
        for _, store, _ in self._kept.values():
            store.abort()
        self._kept.clear()


def _is_same(known: Offer, offer: Offer) -> bool:
    """Whether an offer is of another attempt: a later srd send of the same file is another matter."""
    return (known.sender, known.name, known.size) == (offer.sender, offer.name, offer.size)
