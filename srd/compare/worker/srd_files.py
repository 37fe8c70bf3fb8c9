"""A file over SRD, by the code of `srd send` and `srd recv`: encrypted, hashed as it is read and as it is written.

Both ends derive a symmetric key from what they are told of the file, so that no key of the user's is needed, and no
host becomes a known one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from devmem import RegionError
from srd.compare.worker.arrivals import Copy, FileArrivals, WorkloadError
from srd.compare.worker.carrier import Account, Background
from srd.compare.worker.plan import FIRST_FLOW, Address, PlannedFlow
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.file_transfer.directory import Directory
from srd.file_transfer.inbox import Inbox
from srd.file_transfer.listing import list_all
from srd.file_transfer.outgoing import Outgoing
from srd.file_transfer.protocol import Offer
from srd.file_transfer.receiving import FileReceiver
from srd.file_transfer.sending import FileSender, Outcome
from srd.file_transfer.watcher import Received, Watcher
from srd.peer import Peer
from srd.secure.config import Psk

LOOK_S: Final = 0.005
"""How often it is looked what has landed."""


class SrdFiles(Watcher):
    """An endpoint that sends or receives a file."""

    def __init__(self, arrivals: FileArrivals, copy: Copy) -> None:
        self._arrivals, self._copy = arrivals, copy
        self._background = Background()
        self._inbox = Inbox(Directory(copy.into, overwrite=True))
        self._endpoint: Endpoint | None = None
        self._sender: FileSender | None = None

    async def listen(self, address: str) -> int:
        """See Carrier."""
        security = Psk(bytes.fromhex(self._copy.sha256))
        config = EndpointConfig(security=security, adaptive_poll_s=0.0)  # the thread that moves the file wants the CPU
        self._endpoint = await Endpoint.listen(address, 0, config=config)
        self._background.spawn(self._accept(self._endpoint))
        return self._endpoint.address[1]

    async def connect(self, targets: Mapping[Address, int]) -> None:
        """See Carrier."""

    async def send(self, flow: PlannedFlow) -> None:
        """See Carrier."""
        assert self._endpoint is not None  # noqa: S101 - `listen` comes first
        ends: list[Outcome] = []

        def on_end(_file: Outgoing, outcome: Outcome) -> None:
            ends.append(outcome)

        try:
            peer = await self._endpoint.connect(*flow.to)
        except PeerError as error:
            raise WorkloadError(f"{flow.to[0]}:{flow.to[1]}: {error}") from error
        self._sender = FileSender(peer, file_hash="sha256")  # as TCP's files have
        files = list_all([self._copy.source], secret=secrets.token_bytes(16)).files
        await self._sender.send_all(files, on_end=on_end)
        for end in ends:
            if isinstance(end, SrdError):
                raise end

    async def failed(self) -> None:
        """See Carrier."""
        await self._background.failed()

    def account(self) -> Account:
        """See Carrier."""
        if self._endpoint is None:
            return Account(0, 0)
        stats = self._endpoint.stats()
        return Account(stats.tx_pkts, stats.retrans_pkts)

    async def close(self) -> None:
        """See Carrier."""
        self._inbox.stop()
        await self._background.close()
        if self._endpoint is not None:
            with suppress(SrdError, TimeoutError):
                async with asyncio.timeout(0.5):
                    await self._endpoint.close()
        with suppress(RegionError):  # of what was in flight; the end of the process frees it
            self._inbox.close()
            if self._sender is not None:
                self._sender.close()

    async def _accept(self, endpoint: Endpoint) -> None:
        while True:
            peer = await endpoint.accept()
            self._background.spawn(self._look(peer))
            self._background.spawn(FileReceiver(peer, inbox=self._inbox, watcher=self).receive())

    async def _look(self, peer: Peer) -> None:
        """Count what lands of the file; names and answers land, too, so that it may seem complete a little early."""
        seen_bytes = peer.landed_bytes
        while left := self._arrivals.left_bytes(FIRST_FLOW):
            if (landed_bytes := min(peer.landed_bytes - seen_bytes, left - 1)) > 0:
                seen_bytes += landed_bytes
                self._arrivals.count(FIRST_FLOW, landed_bytes)
            await asyncio.sleep(LOOK_S)

    # -- what the receiver says ---------------------------------------------------------------------------------------

    def on_received(self, received: Received) -> None:  # noqa: ARG002 - it is the only one
        """Count what is left."""
        self._arrivals.count(FIRST_FLOW, self._arrivals.left_bytes(FIRST_FLOW))

    def on_failure(self, offer: Offer, error: Exception, *, is_kept: bool) -> None:  # noqa: ARG002 - nobody goes on
        """End the workload."""
        self._background.spawn(_fail(error))

    def on_lost(self, error: Exception, files: list[tuple[Offer, bool]]) -> None:
        """End the workload, if a file is lost."""
        if files:
            self._background.spawn(_fail(error))


async def _fail(error: Exception) -> None:
    raise WorkloadError(str(error)) from error
