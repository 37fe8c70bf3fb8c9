"""Receiving files: a worker thread writes chunks from the region where they landed to the file, by gathering writes.

A peer that sends nothing occupies no thread, descriptor or memory of its own: the resources of a transfer are allocated
when its offer has arrived, for a bounded number of transfers at a time.

Every wait is bounded: an offer must arrive within OFFER_WITHIN_S, data at least every STALL_S, and a control message
must complete within `send_slots.WITHIN_S`. Every wait also ends when the peer ends.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from srd.errors import PeerError
from srd.file_transfer.partial_file import PartialFile
from srd.file_transfer.protocol import (
    CONTROL_MESSAGE,
    Offer,
    TransferError,
    TransferInterruptedError,
    decode_untrusted,
    digests_untrusted,
    encode,
    offer_untrusted,
    reason_of,
)
from srd.file_transfer.send_slots import SendSlots
from srd.file_transfer.stall import StallMeter
from srd.file_transfer.store_queue import StoreQueue
from srd.file_transfer.transport import Message, Peer
from srd.file_transfer.worker import start_worker
from srd.io.addresses import host_port_text

OFFER_WITHIN_S = 10.0
"""Longest time that a peer may be open without a transfer. A sender offers its file at once."""
STALL_S = 60.0
"""Longest time without data while no chunk waits for the disk. The transport detects a dead sender within seconds; this
bounds one that is alive but sends nothing, as it occupies one of the MAX_TRANSFERS."""
MAX_TRANSFERS = 64
"""Transfers at a time. Each needs a thread and three descriptors, so most of the usual 1,024 stay free; more transfers
would not raise the throughput."""
_REMEMBERED = 1024
"""Completed transfers that are remembered, for senders that lost their peer before they received the VERDICT."""
T = TypeVar("T")


class NotStartedError(TransferError):
    """No transfer was started: no valid offer arrived, or too many transfers are running."""


@dataclass(frozen=True, slots=True)
class Received:
    """A file that was received and has its final name."""

    name: str
    path: Path
    size: int
    file_hash: str
    digest: str
    seconds: float
    longest_stall_ms: float
    """Longest time in which no payload landed, to 5 ms."""
    files_left: int
    """How many files its sender will offer after this one."""


class Transfer:
    """One running attempt and its resources."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.superseded = False
        self.ended = asyncio.Event()
        self.running: asyncio.Future[Received] | None = None
        self.stop = threading.Event()
        self.worker: ThreadPoolExecutor = start_worker("srd-store")

    def start(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Start a blocking call in the transfer's thread, one at a time."""
        return asyncio.get_running_loop().run_in_executor(self.worker, call)

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a blocking call in the transfer's thread, one at a time. When cancelled, wait for the call to end."""
        calling = self.start(call)
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            self.stop.set()
            await asyncio.wait([calling])
            raise

    def supersede(self) -> None:
        """End this attempt because its sender has started another."""
        self.superseded = True
        if self.running is not None:
            self.running.cancel()


class Inbox:
    """State shared by the receivers of a daemon: the directory, running transfers, memory for control messages."""

    def __init__(self, directory: Path, *, overwrite: bool, max_transfers: int = MAX_TRANSFERS) -> None:
        self.directory = directory
        self.overwrite = overwrite
        self.slots = SendSlots()
        self._max_transfers = max_transfers
        self._transfers: dict[str, Transfer] = {}
        self._arrived: OrderedDict[str, tuple[Offer, str]] = OrderedDict()

    async def begin(self, offer: Offer) -> Transfer:
        """Start a transfer after ending an earlier attempt of it. Raises NotStartedError for too many transfers."""
        while (earlier := self._transfers.get(offer.transfer)) is not None:
            earlier.supersede()
            await earlier.ended.wait()
        if len(self._transfers) >= self._max_transfers:
            raise NotStartedError(
                f"{offer.name}: the receiver is busy with {len(self._transfers)} transfers (--max-transfers)"
            )
        transfer = self._transfers[offer.transfer] = Transfer(offer)
        return transfer

    def end(self, transfer: Transfer) -> None:
        """Remove a transfer that has ended."""
        transfer.worker.shutdown(wait=False)
        del self._transfers[transfer.offer.transfer]
        transfer.ended.set()

    def note_arrival(self, offer: Offer, digest: str) -> None:
        """Remember a completed transfer."""
        self._arrived[offer.transfer] = (offer, digest)
        if len(self._arrived) > _REMEMBERED:
            self._arrived.popitem(last=False)

    def arrived(self, offer: Offer) -> str | None:
        """Return the hash of the file if this transfer has completed already."""
        known, digest = self._arrived.get(offer.transfer, (None, ""))
        return digest if known == offer else None

    def close(self) -> None:
        """Release the memory; every peer must have ended."""
        self.slots.close()


class FileReceiver:
    """Receives files from one peer, one after the other, until the peer has ended.

    `on_start(offer, resumed_bytes)` is called when a transfer starts, `warn(line)` for problems that do not fail it.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        inbox: Inbox,
        on_start: Callable[[Offer, int], None],
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._peer = peer
        self._inbox = inbox
        self._on_start = on_start
        self._warn = warn
        self.offer: Offer | None = None
        """The last offer, if it was valid."""

    async def receive(self) -> Received | None:
        """Receive one file; return None when the peer closed instead, or offered a file that had already arrived.

        Raises NotStartedError, which leaves nothing behind; TransferError for a file that failed (the sender is
        informed); and TransferInterruptedError, or PeerError, for a transfer that may be resumed.
        """
        self.offer = None
        try:
            message = await self._receive_offer()
            if message is None:
                return None
            self.offer = offer = offer_untrusted(message)
            if (digest := self._inbox.arrived(offer)) is not None:
                await self._confirm(offer, digest)
                return None
            transfer = await self._inbox.begin(offer)
        except TransferError as error:
            await self._send_control("refuse", reason=str(error), again=self.offer is not None)
            raise NotStartedError(str(error)) from error
        try:
            return await self._run(transfer)
        finally:
            self._inbox.end(transfer)

    async def _run(self, transfer: Transfer) -> Received:
        """Run a transfer in a task of its own, which another attempt of the sender may cancel."""
        running = transfer.running = asyncio.ensure_future(self._receive(transfer))
        try:
            return await running  # a cancellation is passed on, and its cleanup awaited
        except asyncio.CancelledError:
            if transfer.superseded:
                raise TransferInterruptedError(f"{transfer.offer.name}: its sender has begun another attempt") from None
            raise

    async def _receive(self, transfer: Transfer) -> Received:
        offer = transfer.offer
        store = PartialFile(self._inbox.directory, offer, overwrite=self._inbox.overwrite, stop=transfer.stop)
        answer, is_kept = "refuse", False
        try:
            await transfer.in_thread(store.open)
            answer = "verdict"
            return await self._receive_chunks(transfer, store)
        except (PeerError, TransferInterruptedError, asyncio.CancelledError) as error:
            # A sender that closes in an orderly way has aborted; one that is lost may retry.
            is_kept = offer.retry_for_s > 0 and not (isinstance(error, PeerError) and error.status == 0)
            if isinstance(error, TransferInterruptedError):
                await self._send_control(answer, reason=str(error), again=True)
            raise
        except TransferError as error:
            await self._send_control(answer, reason=str(error))
            raise
        finally:
            await transfer.in_thread(store.leave if is_kept else store.abort)
            if store.unremoved:
                self._warn(store.unremoved)

    async def _receive_chunks(self, transfer: Transfer, store: PartialFile) -> Received:
        offer = transfer.offer
        self._on_start(offer, min(store.resumed_chunks * offer.chunk_bytes, offer.size))
        await self._send_control("accept", chunks=store.resumed_chunks)
        started = time.monotonic()
        queue = StoreQueue(store, start=transfer.start)
        try:
            with StallMeter(lambda: self._peer.landed_bytes) as stall:
                digest = await self._store_chunks(transfer, store, queue)
            await queue.drain()
        finally:
            await queue.close()
        final_digest = await transfer.in_thread(lambda: store.finish(digest=digest))
        self._inbox.note_arrival(offer, final_digest)
        seconds = time.monotonic() - started
        await self._send_control("verdict", digest=final_digest)
        return Received(
            name=offer.name,
            path=store.final,
            size=offer.size,
            file_hash=offer.file_hash,
            digest=final_digest,
            seconds=seconds,
            longest_stall_ms=stall.longest_s * 1e3,
            files_left=offer.files_left,
        )

    async def _store_chunks(self, transfer: Transfer, store: PartialFile, queue: StoreQueue) -> str:
        """Start to store every chunk as it arrives, and to compare the digests; return the sender's, of the file."""
        digest: str | None = None
        chunks = digests = store.resumed_chunks
        while min(chunks, digests) < transfer.offer.chunks or digest is None:
            message = await self._next(queue)
            if message.immediate != CONTROL_MESSAGE:
                chunks += 1
                queue.add(message)
                continue
            with message:
                control = decode_untrusted(message.gather())
            if control["kind"] == "hashes":
                first, batch = digests_untrusted(control)
                digests += len(batch)
                queue.announce(first, batch)
            else:
                digest = _end_untrusted(control)
        return digest

    async def _next(self, queue: StoreQueue) -> Message:
        """Return the next message. Raises TransferInterruptedError if none arrives though nothing is being stored."""
        while True:
            landed_bytes = self._peer.landed_bytes
            try:
                async with asyncio.timeout(STALL_S):
                    return await self._peer.recv()
            except TimeoutError:
                queue.check()
                if self._peer.landed_bytes == landed_bytes and queue.is_idle:
                    raise TransferInterruptedError(f"the sender is alive, but sent nothing for {STALL_S:g} s") from None

    async def _receive_offer(self) -> dict[str, Any] | None:
        """Return the offer; None when the peer closed instead.

        Raises NotStartedError when the peer is lost, sends nothing, or sends an invalid message.
        """
        try:
            async with asyncio.timeout(OFFER_WITHIN_S):
                return await self._receive_control()
        except TimeoutError:
            raise NotStartedError(f"{self._name}: offered nothing within {OFFER_WITHIN_S:g} s") from None
        except PeerError as error:
            if error.status == 0:
                return None
            raise NotStartedError(str(error)) from error
        except TransferError as error:
            raise NotStartedError(f"{self._name}: {error}") from error

    async def _confirm(self, offer: Offer, digest: str) -> None:
        """Repeat the VERDICT to a sender that lost its peer before it received it."""
        await self._send_control("accept", chunks=offer.chunks)
        with suppress(PeerError, TimeoutError):
            async with asyncio.timeout(OFFER_WITHIN_S):
                _end_untrusted(await self._receive_control())
            await self._send_control("verdict", digest=digest)

    @property
    def _name(self) -> str:
        return host_port_text(*self._peer.address)

    async def _receive_control(self) -> dict[str, Any]:
        with await self._peer.recv() as message:
            if message.immediate != CONTROL_MESSAGE:
                raise TransferError("data before an offer")
            return decode_untrusted(message.gather())

    async def _send_control(self, kind: str, **fields: object) -> None:
        """Send a control message. A failure is ignored: the next wait for the peer detects it."""
        await self._inbox.slots.send(self._peer, encode(kind, **fields))


def _end_untrusted(message: dict[str, Any]) -> str:
    """Return the hash of END. Raises TransferInterruptedError for ABORT with `again`, else TransferError."""
    if message["kind"] == "abort":
        kind = TransferInterruptedError if message.get("again") is True else TransferError
        raise kind(f"the sender gave up: {reason_of(message, default='without a reason')}")
    if message["kind"] != "end" or not isinstance(message.get("digest"), str):
        raise TransferError(f"{message['kind'][:80]!r} where the end was expected")
    return str(message["digest"])
