"""What the sessions of a receiver share: the directory, the transfers that are running, memory for control messages."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from srd.file_transfer.errors import TransferError
from srd.file_transfer.protocol import Offer
from srd.file_transfer.send_slots import SendSlots
from srd.file_transfer.tree import Tree

MAX_TRANSFERS = 64
"""Senders at a time. Each needs a thread and descriptors; more would not raise the throughput."""
MAX_OPEN_FILES = 256
"""Files that are being written at a time. Each has up to three descriptors of the usual 1,024. Further ones wait, but a
sender may always write one."""
_REMEMBERED = 1024
"""Completed transfers that are remembered, for senders that lost their peer before they received the answer."""


class NotStartedError(TransferError):
    """No transfer was started: no valid offer arrived, or too many senders are served."""


class Session(Protocol):
    """What receives from one peer."""

    ended: asyncio.Event

    def supersede(self) -> None:
        """End, because the sender has opened another peer for the same transfers."""

    def wake(self) -> None:
        """Try again to open files, as there may be room."""


class Inbox:
    """State shared by the sessions of a daemon."""

    def __init__(self, directory: Path, *, overwrite: bool, max_transfers: int = MAX_TRANSFERS) -> None:
        self.directory = directory
        self.tree = Tree(directory)
        self.overwrite = overwrite
        self.slots = SendSlots()
        self._max_transfers = max_transfers
        self._sessions: set[Session] = set()
        self._owners: dict[str, Session] = {}  # by transfer
        self._open_files = 0
        self._arrived: OrderedDict[str, tuple[Offer, str]] = OrderedDict()

    async def begin(self, session: Session, offers: tuple[Offer, ...]) -> None:
        """Admit a session, after ending earlier ones of its files. Raises NotStartedError for too many."""
        await self._supersede(session, offers)
        if len(self._sessions) >= self._max_transfers:
            name = f"{offers[0].name}: " if offers else ""
            raise NotStartedError(f"{name}the receiver is busy with {len(self._sessions)} transfers (--max-transfers)")
        self._sessions.add(session)

    def end(self, session: Session) -> None:
        """Remove a session that has ended, and every file of it."""
        self._sessions.discard(session)
        session.ended.set()

    async def claim(self, session: Session, offer: Offer) -> None:
        """Have a transfer for one session. Raises TransferError if it has it already."""
        if self._owners.get(offer.transfer) is session:
            raise TransferError(f"{offer.name}: is offered twice at a time")
        await self._supersede(session, (offer,))
        self._owners[offer.transfer] = session

    async def _supersede(self, session: Session, offers: tuple[Offer, ...]) -> None:
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

    def note_arrival(self, offer: Offer, digest: str) -> None:
        """Remember a completed transfer."""
        self._arrived[offer.transfer] = (offer, digest)
        if len(self._arrived) > _REMEMBERED:
            self._arrived.popitem(last=False)

    def arrived(self, offer: Offer) -> str | None:
        """Return the hash of the file if this transfer has completed already."""
        known, digest = self._arrived.get(offer.transfer, (None, ""))
        if known is None:
            return None
        is_same = (known.sender, known.name, known.size) == (offer.sender, offer.name, offer.size)
        return digest if is_same else None  # a later srd send of the same file is another matter

    def close(self) -> None:
        """Release the memory; every peer must have ended."""
        self.slots.close()
