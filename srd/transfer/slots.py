"""Memory that words are sent from, shared by all peers of a daemon: a peer that says nothing costs none."""

from __future__ import annotations

import asyncio

from devmem.region import Region
from srd.peer import Peer
from srd.proto.status import Status
from srd.transfer.words import MAX_WORD_BYTES, WORD
from srd.waiting import Waiting

COUNT = 64
"""Words on their way at a time: 1 MiB. Each takes a round trip, and more wait for their turn."""
WITHIN_S = 10.0
"""Longest that a word is waited for: a peer that lives has credit for one, or its application is stuck."""


class SendSlots:
    """Slots of one region; each holds a word until its request has ended, however that does."""

    def __init__(self) -> None:
        self._region = Region(COUNT * MAX_WORD_BYTES, name="srd-words")
        self._free = list(range(COUNT))
        self._changed = Waiting()

    async def send(self, peer: Peer, body: bytes) -> bool:
        """Send a word; return whether the peer has taken it. Takes no longer than WITHIN_S."""
        try:
            async with asyncio.timeout(WITHIN_S):
                while not self._free:
                    await self._changed.wait()
                if peer.ended:
                    return False
                return await asyncio.shield(self._post(peer, body)) is Status.OK
        except TimeoutError:
            return False

    def _post(self, peer: Peer, body: bytes) -> asyncio.Future[Status]:
        slot = self._free.pop()
        offset = slot * MAX_WORD_BYTES
        with self._region.view(offset, length=len(body)) as view:
            view[:] = body

        def done(_: asyncio.Future[Status]) -> None:
            self._free.append(slot)
            self._changed.wake()

        try:
            sending = peer.send(self._region, offset=offset, length=len(body), immediate=WORD)
        except BaseException:
            self._free.append(slot)
            raise
        sending.add_done_callback(done)
        return sending

    def close(self) -> None:
        """Give the memory back; every peer must be gone."""
        self._region.close()
