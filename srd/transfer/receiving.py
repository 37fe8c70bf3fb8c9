"""Receiving files: chunks go from the region where they landed to the file, by gathering writes, in a worker thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from devmem.region import Region
from srd.errors import PeerError
from srd.message import Message
from srd.peer import Peer
from srd.transfer.store import Store
from srd.transfer.words import WORD, Offer, TransferError, decode_untrusted, encode, offer_untrusted
from srd.transfer.worker import start_worker

_WORD_ROOM = 16 << 10
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Received:
    """A file that has its final name."""

    name: str
    path: Path
    size: int
    sha256: str
    seconds: float
    longest_stall_ms: float


class FileReceiver:
    """Takes files from one peer, one after the other, until it is gone."""

    def __init__(self, peer: Peer, *, directory: Path, overwrite: bool, on_start: Callable[[Offer], None]) -> None:
        self._peer = peer
        self._directory = directory
        self._overwrite = overwrite
        self._on_start = on_start
        self._region = Region(_WORD_ROOM, name="srd-words")
        self._worker = start_worker("srd-store")

    async def receive(self) -> Received | None:
        """Receive one file; None when the peer parted instead.

        Raises TransferError for a file that failed (its sender was told), PeerError when the peer was lost.
        """
        try:
            word = await self._word()
        except PeerError as error:
            if error.status == 0:
                return None
            raise
        try:
            offer = offer_untrusted(word)
            store = await self._in_thread(lambda: Store(self._directory, offer, overwrite=self._overwrite))
        except TransferError as error:
            await self._say("refuse", reason=str(error))
            raise
        try:
            return await self._receive_chunks(offer, store)
        except TransferError as error:
            await self._say("verdict", reason=str(error))
            raise
        finally:
            await self._in_thread(store.abort)

    async def _receive_chunks(self, offer: Offer, store: Store) -> Received:
        self._peer.start_gap()
        self._on_start(offer)
        await self._say("accept")
        started = time.monotonic()
        pending: set[asyncio.Future[None]] = set()
        try:
            sha256 = await self._take_chunks(offer, store, pending)
            await asyncio.gather(*pending)
        finally:
            await asyncio.gather(*pending, return_exceptions=True)  # the memory under them is lent
        final_sha256 = await self._in_thread(lambda: store.finish(sha256=sha256))
        seconds = time.monotonic() - started
        await self._say("verdict", sha256=final_sha256)
        stall_ms = self._peer.longest_gap_s * 1e3
        return Received(offer.name, store.final, offer.size, final_sha256, seconds, stall_ms)

    async def _take_chunks(self, offer: Offer, store: Store, pending: set[asyncio.Future[None]]) -> str:
        """Put every chunk on its way to the store; return the sender's hash."""
        sha256: str | None = None
        chunks = 0
        while chunks < offer.chunks or sha256 is None:
            message = await self._peer.recv()
            if message.immediate == WORD:
                with message:
                    word = decode_untrusted(message.gather())
                if word["kind"] != "end" or not isinstance(word.get("sha256"), str):
                    raise TransferError(f"{word['kind']!r} where the end was expected")
                sha256 = word["sha256"]
                continue
            chunks += 1
            pending.add(asyncio.ensure_future(self._put(store, message)))
            finished = [future for future in pending if future.done()]
            for future in finished:
                future.result()  # a failed one stays with the pending, whose errors are collected in the end
                pending.remove(future)
        return sha256

    async def _put(self, store: Store, message: Message) -> None:
        views = list(message.views())

        def put() -> None:
            if message.immediate is None:
                raise TransferError("a message that is neither a chunk nor a word")
            store.put(message.immediate, views)

        try:
            await asyncio.get_running_loop().run_in_executor(self._worker, put)
        finally:
            message.release()
            views.clear()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)

    async def _word(self) -> dict[str, object]:
        with await self._peer.recv() as message:
            if message.immediate != WORD:
                raise TransferError("data before an offer")
            return decode_untrusted(message.gather())

    async def _say(self, kind: str, **fields: object) -> None:
        body = encode(kind, **fields)
        with self._region.view(0, length=len(body)) as view:
            view[:] = body
        if not self._peer.ended:
            await self._peer.send(self._region, offset=0, length=len(body), immediate=WORD)

    def close(self) -> None:
        """Stop the worker and give the memory back."""
        self._worker.shutdown(wait=True)
        self._region.close()
