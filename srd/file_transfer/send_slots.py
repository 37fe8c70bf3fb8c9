"""Memory that words are sent from, shared by all peers of a daemon: a peer that says nothing costs none."""

from __future__ import annotations

import asyncio

from devmem.region import Region
from srd.file_transfer.protocol import MAX_MESSAGE_BYTES, MESSAGE
from srd.notify import Notify
from srd.peer import Peer
from srd.proto.wire.status import Status

COUNT = 64
"""Words on their way at a time: 1 MiB. Each takes a round trip, and more wait for their turn."""
WITHIN_S = 10.0
"""Longest that a word is waited for: a peer that lives has credit for one, or its application is stuck."""


class SendSlots:
    """Slots of one region; each holds a word until its request has ended, however that does."""

    def __init__(self) -> None:
        self._region = Region(COUNT * MAX_MESSAGE_BYTES, name="srd-words")
        self._free = list(range(COUNT))
        self._changed = Notify()
        self._lent: set[asyncio.Future[Status]] = set()  # ends of peers that cancelled words wait for

    async def send(self, peer: Peer, body: bytes) -> bool:
        """Send a word; return whether the peer has taken it. Takes no longer than WITHIN_S."""
        try:
            async with asyncio.timeout(WITHIN_S):
                while not self._free:
                    await self._changed.wait()
                if peer.ended:
                    return False
                return await self._send(peer, body, slot=self._free.pop()) is Status.OK
        except TimeoutError:
            return False

    async def _send(self, peer: Peer, body: bytes, *, slot: int) -> Status:
        offset = slot * MAX_MESSAGE_BYTES
        with self._region.view(offset, length=len(body)) as view:
            view[:] = body
        try:
            status = await peer.send(self._region, offset=offset, length=len(body), immediate=MESSAGE)
        except asyncio.CancelledError:
            # A packet may still be on its way out of this memory; nothing is when the peer has ended.
            waiting = asyncio.ensure_future(peer.wait_ended())
            self._lent.add(waiting)
            waiting.add_done_callback(lambda _: self._give_back(slot))
            waiting.add_done_callback(self._lent.discard)
            raise
        except BaseException:
            self._give_back(slot)
            raise
        self._give_back(slot)
        return status

    def _give_back(self, slot: int) -> None:
        self._free.append(slot)
        self._changed.notify()

    def close(self) -> None:
        """Give the memory back; every peer must be gone."""
        for waiting in self._lent:
            waiting.cancel()
        self._region.close()
