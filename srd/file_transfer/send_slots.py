"""Memory for sending control messages, shared by all peers of a daemon, so that an idle peer needs none."""

from __future__ import annotations

import asyncio

from devmem.region import Region
from srd.file_transfer.protocol import CONTROL_MESSAGE, MAX_CONTROL_BYTES
from srd.notify import Notify
from srd.peer import Peer
from srd.proto.wire.status import Status

COUNT = 64
"""Control messages in flight at a time: 2 MiB. Each takes about a round trip; further ones wait for a slot."""
WITHIN_S = 10.0
"""Timeout of a control message: a live peer has credit for one, unless its application is stuck."""


class SendSlots:
    """Slots of one region; each holds a control message until its request has completed with any status."""

    def __init__(self, *, count: int = COUNT, within_s: float | None = WITHIN_S) -> None:
        """`within_s`: timeout of a message; None: that of a request."""
        self._within_s = within_s
        self._region = Region(count * MAX_CONTROL_BYTES, name="srd-messages")
        self._free = list(range(count))
        self._changed = Notify()
        self._lent: set[asyncio.Future[Status]] = set()  # waits for the end of peers with cancelled requests

    async def send(self, peer: Peer, body: bytes) -> Status:
        """Send a control message; return its status, FLUSHED after `within_s`."""
        try:
            async with asyncio.timeout(self._within_s):
                while not self._free:
                    await self._changed.wait()
                if peer.ended:
                    return Status.FLUSHED
                return await self._send(peer, body, slot=self._free.pop())
        except TimeoutError:
            return Status.FLUSHED

    async def _send(self, peer: Peer, body: bytes, *, slot: int) -> Status:
        offset = slot * MAX_CONTROL_BYTES
        with self._region.view(offset, length=len(body)) as view:
            view[:] = body
        try:
            status = await peer.post_send(self._region, offset=offset, length=len(body), immediate=CONTROL_MESSAGE)
        except asyncio.CancelledError:
            # A packet may still be sent from this memory, until the peer has ended.
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
        """Release the memory; every peer must have ended."""
        for waiting in self._lent:
            waiting.cancel()
        self._region.close()
