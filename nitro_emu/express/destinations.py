"""What the engine of an interface (`function`) takes from its peers: introductions, and packets."""

from __future__ import annotations

from typing import Final

from nitro_emu.peers.incoming import IncomingPeers
from nitro_emu.peers.introduction import INTRODUCTION_KEY
from srd.proto.wire.status import Status

PACKETS_KEY: Final = 1
"""The key of messages with packets. A queue pair's has its number in the highest 16 bits, and none has the number 0."""


class ExpressDestinations:
    """The `Destinations` of the engine, which has no registered memory."""

    def __init__(self, sources: IncomingPeers) -> None:
        self._sources = sources

    def admit(self, key: int, *, peer: int, length: int, count: int) -> Status | None:
        """Take introductions, and packets of peers that were let in."""
        if key == INTRODUCTION_KEY:
            return self._sources.admit_introduction(peer, length=length, count=count)
        is_let_in = key == PACKETS_KEY and self._sources.named(peer) is not None
        return None if is_let_in else Status.REMOTE_ERROR_BAD_DEST_QPN

    def admit_write(self, key: int, *, peer: int) -> Status | None:
        """Take none."""
        return self.refusal(key, peer=peer)

    def refusal(self, key: int, *, peer: int) -> Status:
        """Return the status of what there is not."""
        del key, peer
        return Status.REMOTE_ERROR_BAD_DEST_QPN

    def flow(self, key: int) -> int:
        """Return the flow of the answer to a read, of which there are none."""
        del key
        return 0
