"""Receiving files: chunks go from the region where they landed to the file, by gathering writes, in a worker thread.

A peer that sends nothing costs no thread, no descriptor and no memory of its own: what a transfer needs is had when
its offer is there, and for so many transfers at a time.

What bounds each wait: an offer must come within OFFER_WITHIN_S, data at least every STALL_S, and a word is taken
within `slots.WITHIN_S`; all of it ends with the peer.
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
    MESSAGE,
    Offer,
    TransferError,
    TransferInterruptedError,
    decode_untrusted,
    encode,
    offer_untrusted,
    reason_of,
)
from srd.file_transfer.send_slots import SendSlots
from srd.file_transfer.worker import start_worker
from srd.io.addresses import host_port_text
from srd.message import Message
from srd.peer import Peer

OFFER_WITHIN_S = 10.0
"""Longest that a peer may be open without a transfer. A sender offers its file at once."""
STALL_S = 60.0
"""Longest without a byte while nothing waits for the disk here. A sender that is gone is known within seconds; one that
lives and sends nothing keeps others from a place."""
MAX_TRANSFERS = 64
"""Transfers at a time. Each takes a thread and three descriptors, which leaves most of the usual 1,024 free, and 64
fill any line."""
_REMEMBERED = 1024
"""Files that are known to have arrived: for a sender that lost its peer before it heard so."""
T = TypeVar("T")


class NotStartedError(TransferError):
    """No transfer was begun: no valid offer came, or there is no place for one now."""


@dataclass(frozen=True, slots=True)
class Received:
    """A file that has its final name."""

    name: str
    path: Path
    size: int
    sha256: str
    seconds: float
    longest_stall_ms: float


class Transfer:
    """One attempt that is going on: what it holds of this process."""

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.superseded = False
        self.ended = asyncio.Event()
        self.running: asyncio.Future[Received] | None = None
        self.stop = threading.Event()
        self.worker: ThreadPoolExecutor = start_worker("srd-store")

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a call that blocks; those of a transfer run one after the other. Waits for its end when cancelled."""
        calling = asyncio.get_running_loop().run_in_executor(self.worker, call)
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            self.stop.set()
            await asyncio.wait([calling])
            raise

    def supersede(self) -> None:
        """End this attempt: its sender has begun another."""
        self.superseded = True
        if self.running is not None:
            self.running.cancel()


class Inbox:
    """What the receivers of one daemon share: the directory, the transfers that are going on, memory for words."""

    def __init__(self, directory: Path, *, overwrite: bool, max_transfers: int = MAX_TRANSFERS) -> None:
        self.directory = directory
        self.overwrite = overwrite
        self.slots = SendSlots()
        self._max_transfers = max_transfers
        self._transfers: dict[str, Transfer] = {}
        self._arrived: OrderedDict[str, tuple[Offer, str]] = OrderedDict()

    async def begin(self, offer: Offer) -> Transfer:
        """Give a place to a transfer; an earlier attempt of the same one ends first. Raises NotStartedError."""
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
        """Take the place back."""
        transfer.worker.shutdown(wait=False)
        del self._transfers[transfer.offer.transfer]
        transfer.ended.set()

    def note_arrival(self, offer: Offer, sha256: str) -> None:
        """Remember a file that has its name."""
        self._arrived[offer.transfer] = (offer, sha256)
        if len(self._arrived) > _REMEMBERED:
            self._arrived.popitem(last=False)

    def arrived(self, offer: Offer) -> str | None:
        """Return the hash of what arrived by this very transfer, if it did."""
        known, sha256 = self._arrived.get(offer.transfer, (None, ""))
        return sha256 if known == offer else None

    def close(self) -> None:
        """Give the memory back; every peer must be gone."""
        self.slots.close()


class FileReceiver:
    """Takes files from one peer, one after the other, until it is gone.

    `on_start(offer, resumed_bytes)` is called when a transfer begins, `warn(line)` for what is no failure of it.
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
        """What came last, if it was valid."""

    async def receive(self) -> Received | None:
        """Receive one file; None when the peer parted instead, or learned again that its file had arrived.

        Raises NotStartedError, of which nothing is left; TransferError for a file that failed (its sender was told);
        and TransferInterruptedError, or PeerError, for one that may be resumed.
        """
        self.offer = None
        try:
            word = await self._receive_offer()
            if word is None:
                return None
            self.offer = offer = offer_untrusted(word)
            if (sha256 := self._inbox.arrived(offer)) is not None:
                await self._confirm(offer, sha256)
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
        """Do a transfer in a task of its own, which another attempt of the sender's may end."""
        running = transfer.running = asyncio.ensure_future(self._receive(transfer))
        try:
            return await running  # a cancellation is passed on, and waits for what it cleans up
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
            # A sender that parts in an orderly way has given up; one that is lost comes back.
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
        self._peer.start_gap()
        self._on_start(offer, min(store.resumed_chunks * offer.chunk_bytes, offer.size))
        await self._send_control("accept", chunks=store.resumed_chunks)
        started = time.monotonic()
        pending: set[asyncio.Future[None]] = set()
        try:
            sha256 = await self._store_chunks(transfer, store, pending)
            await asyncio.gather(*pending)
        finally:
            await asyncio.gather(*pending, return_exceptions=True)  # the memory under them is lent
        final_sha256 = await transfer.in_thread(lambda: store.finish(sha256=sha256))
        self._inbox.note_arrival(offer, final_sha256)
        seconds = time.monotonic() - started
        await self._send_control("verdict", sha256=final_sha256)
        stall_ms = self._peer.longest_gap_s * 1e3
        return Received(offer.name, store.final, offer.size, final_sha256, seconds, stall_ms)

    async def _store_chunks(self, transfer: Transfer, store: PartialFile, pending: set[asyncio.Future[None]]) -> str:
        """Put every chunk on its way to the store; return the sender's hash."""
        sha256: str | None = None
        chunks = store.resumed_chunks
        while chunks < transfer.offer.chunks or sha256 is None:
            message = await self._next(pending)
            if message.immediate == MESSAGE:
                with message:
                    sha256 = _end_untrusted(decode_untrusted(message.gather()))
                continue
            chunks += 1
            pending.add(asyncio.ensure_future(self._store_chunk(transfer, store, message)))
            finished = [future for future in pending if future.done()]
            for future in finished:
                future.result()  # a failed one stays with the pending, whose errors are collected in the end
                pending.remove(future)
        return sha256

    async def _next(self, pending: set[asyncio.Future[None]]) -> Message:
        """Return the next message. Raises TransferInterruptedError when nothing arrives though there is room for it."""
        while True:
            landed_bytes = self._peer.landed_bytes
            try:
                async with asyncio.timeout(STALL_S):
                    return await self._peer.recv()
            except TimeoutError:
                if self._peer.landed_bytes == landed_bytes and all(future.done() for future in pending):
                    raise TransferInterruptedError(f"the sender lives, but sent nothing for {STALL_S:g} s") from None

    async def _store_chunk(self, transfer: Transfer, store: PartialFile, message: Message) -> None:
        views = list(message.views())

        def put() -> None:
            if message.immediate is None:
                raise TransferError("a message that is neither a chunk nor a word")
            store.put(message.immediate, views)

        try:
            await transfer.in_thread(put)
        finally:
            message.release()
            views.clear()

    async def _receive_offer(self) -> dict[str, Any] | None:
        """Return the offer; None when the peer parted instead.

        Raises NotStartedError when it is lost, or says nothing, or nonsense.
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

    async def _confirm(self, offer: Offer, sha256: str) -> None:
        """Tell a sender that lost its peer at the end once more that its file arrived."""
        await self._send_control("accept", chunks=offer.chunks)
        with suppress(PeerError, TimeoutError):
            async with asyncio.timeout(OFFER_WITHIN_S):
                _end_untrusted(await self._receive_control())
            await self._send_control("verdict", sha256=sha256)

    @property
    def _name(self) -> str:
        return host_port_text(*self._peer.address)

    async def _receive_control(self) -> dict[str, Any]:
        with await self._peer.recv() as message:
            if message.immediate != MESSAGE:
                raise TransferError("data before an offer")
            return decode_untrusted(message.gather())

    async def _send_control(self, kind: str, **fields: object) -> None:
        """Say a word, if the peer takes it; one that does not is found out by what is waited for next."""
        await self._inbox.slots.send(self._peer, encode(kind, **fields))


def _end_untrusted(word: dict[str, Any]) -> str:
    """Return the hash of END. Raises TransferInterruptedError and TransferError for ABORT, and for anything else."""
    if word["kind"] == "abort":
        kind = TransferInterruptedError if word.get("again") is True else TransferError
        raise kind(f"the sender gave up: {reason_of(word, default='it does not say why')}")
    if word["kind"] != "end" or not isinstance(word.get("sha256"), str):
        raise TransferError(f"{word['kind'][:80]!r} where the end was expected")
    return str(word["sha256"])
