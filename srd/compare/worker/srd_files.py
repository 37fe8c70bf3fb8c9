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
from srd.compare.worker.plan import FIRST_FLOW, Address, PlannedFlow
from srd.compare.worker.srd_carrier import SrdEndpoint
from srd.config import EndpointConfig
from srd.errors import SrdError
from srd.file_transfer.directory import Directory
from srd.file_transfer.listing import list_all
from srd.file_transfer.outgoing import OutgoingFile
from srd.file_transfer.protocol import Offer, Offers
from srd.file_transfer.receiving import FileReceiver
from srd.file_transfer.sending import FileEnd, FileSender
from srd.file_transfer.sessions import TransferSessions
from srd.file_transfer.watcher import Watcher
from srd.peer import Peer
from srd.secure.config import Psk

LOOK_S: Final = 0.005
"""How often it is looked what has landed."""


class SrdFiles(SrdEndpoint, Watcher):
    """An endpoint that sends or receives a file."""

    def __init__(self, arrivals: FileArrivals, copy: Copy) -> None:
        security = Psk(bytes.fromhex(copy.sha256))
        super().__init__(EndpointConfig(security=security, adaptive_poll_s=0.0))  # the thread of the file wants the CPU
        self._arrivals, self._copy = arrivals, copy
        self._sessions = TransferSessions(Directory(copy.into, overwrite=True))
        self._sender: FileSender | None = None
        self._peer: Peer | None = None
        """Who sends the file."""

    async def connect(self, targets: Mapping[Address, int]) -> None:
        """See Carrier."""

    async def send(self, flow: PlannedFlow) -> None:
        """See Carrier."""
        failures: list[SrdError] = []

        def on_end(_file: OutgoingFile, end: FileEnd) -> None:
            failures.extend([end] if isinstance(end, SrdError) else [])

        self._sender = FileSender(await self._connect(flow.to), file_hash="sha256")  # as TCP's files have
        files = list_all([self._copy.source], secret=secrets.token_bytes(16)).files
        await self._sender.send_all(files, on_end=on_end)
        if failures:
            raise failures[0]

    async def close(self) -> None:
        """See Carrier."""
        self._sessions.stop()
        await super().close()
        with suppress(RegionError):  # of what was in flight; the end of the process frees it
            self._sessions.close()
            if self._sender is not None:
                self._sender.close()

    async def _receive(self, peer: Peer) -> None:
        self._peer = peer
        await FileReceiver(peer, sessions=self._sessions, watcher=self).receive()

    def on_begin(self, offers: Offers) -> None:  # noqa: ARG002 - there is one
        """Look from now on: the offer that has landed is nothing of the file."""
        if self._peer is not None:
            self._background.spawn(self._look(self._peer))

    async def _look(self, peer: Peer) -> None:
        """Count what lands of the file: names and digests land, too, so that it is whole a little early."""
        seen_bytes = peer.landed_bytes
        while left := self._arrivals.left_bytes(FIRST_FLOW):
            if (landed_bytes := min(peer.landed_bytes - seen_bytes, left)) > 0:
                seen_bytes += landed_bytes
                self._arrivals.count(FIRST_FLOW, landed_bytes)
            await asyncio.sleep(LOOK_S)

    def on_failure(self, offer: Offer, error: Exception, *, is_kept: bool) -> None:  # noqa: ARG002 - nobody goes on
        """End the workload."""
        self._background.fail(WorkloadError(str(error)))

    def on_lost(self, error: Exception, files: list[tuple[Offer, bool]]) -> None:
        """End the workload, if a file is lost."""
        if files:
            self._background.fail(WorkloadError(str(error)))
