"""Sending files: a window of memory slides over each; what is read is hashed once, on its way.

Or the file is mapped, and sent from the page cache as it lies there. It is still read for its hash, a little at a time,
into memory that stays in the processor's cache: a process that touches a mapped file which became shorter is killed
(SIGBUS), and a system call is told. So what became shorter is an error here, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

from devmem.errors import RegionError
from devmem.region import Region
from srd.errors import PeerError
from srd.peer import Peer
from srd.proto.status import Status
from srd.transfer.words import CHUNK_BYTES, WORD, TransferError, decode_untrusted, encode, printable
from srd.transfer.worker import start_worker

SLOTS = 16
"""Chunks in memory: read ahead and in flight. 16 MiB is 10 Gbit/s for 13 ms."""
_SCRATCH_BYTES = 256 << 10
"""Read at once of what is only hashed: a quarter of a core's own cache."""
_WORD_ROOM = 64 << 10


@dataclass(frozen=True, slots=True)
class Sent:
    """A file that the receiver has verified."""

    name: str
    size: int
    sha256: str


class FileSender:
    """Sends files to one peer, one after the other. `on_progress(bytes)` is called for what was acknowledged.

    With `mapped` files are sent from where the page cache has them; nobody may shorten them meanwhile.
    """

    def __init__(self, peer: Peer, *, on_progress: Callable[[int], None], mapped: bool = False) -> None:
        self._peer = peer
        self._on_progress = on_progress
        self._is_mapped = mapped
        self._mapped: list[Region] = []
        self._in_flight: set[asyncio.Future[Status]] = set()
        self._worker = start_worker("srd-read")
        self._region = Region(SLOTS * CHUNK_BYTES + _WORD_ROOM, name="srd-send")

    async def send(self, path: Path) -> Sent:
        """Send one file. Raises TransferError, or PeerError when the peer is gone."""
        try:
            with FileIO(path) as file:
                return await self._send_open(file, path)
        except OSError as error:
            raise TransferError(f"{path}: cannot be read: {error.strerror}") from error

    async def _send_open(self, file: FileIO, path: Path) -> Sent:
        size = os.fstat(file.fileno()).st_size
        await self._say("offer", name=path.name, size=size, chunk_bytes=CHUNK_BYTES)
        answer = await self._listen()
        if answer["kind"] != "accept":
            raise TransferError(printable(answer.get("reason", "refused without a reason")))
        # The verdict may come early: a receiver whose disk is full says so at once.
        verdict = asyncio.ensure_future(self._listen())
        sha256: str | None = None
        try:
            sha256 = await self._send_chunks(file, path, size=size, verdict=verdict)
            if sha256 is not None:
                await self._say("end", sha256=sha256)
            word = await verdict
        except PeerError:
            # What it said last matters more than that it went: messages outlive their peer.
            await asyncio.wait([verdict])
            if verdict.exception() is not None:
                raise
            word = verdict.result()
        finally:
            verdict.cancel()
        if sha256 is None or word["kind"] != "verdict" or word.get("sha256") != sha256:
            raise TransferError(printable(word.get("reason", f"{path}: the receiver could not verify it")))
        return Sent(path.name, size, sha256)

    async def _send_chunks(
        self, file: FileIO, path: Path, *, size: int, verdict: asyncio.Future[dict[str, Any]]
    ) -> str | None:
        """Send every chunk; return the hash, or None when the verdict came first."""
        digest = hashlib.sha256()
        free: asyncio.Queue[int] = asyncio.Queue()
        for slot in range(SLOTS):
            free.put_nowait(slot)
        mapping = self._map(file) if self._is_mapped and size else None

        def load(slot: int, index: int, length: int) -> int:
            """In a worker thread: read a chunk and hash it; return where it is sent from."""
            step = _SCRATCH_BYTES if mapping else length
            at = slot * CHUNK_BYTES
            for done in range(0, length, step):
                size_bytes = min(step, length - done)
                with self._region.view(at, length=size_bytes) as view:
                    if file.readinto(view) != size_bytes:
                        raise TransferError(f"{path}: became shorter while it was read; send it again")
                    digest.update(view)
            return index * CHUNK_BYTES if mapping else at

        for index in range(-(-size // CHUNK_BYTES)):
            slot = await free.get()
            if verdict.done():
                return None
            length = min(CHUNK_BYTES, size - index * CHUNK_BYTES)
            reading = asyncio.get_running_loop().run_in_executor(self._worker, load, slot, index, length)
            try:
                offset = await asyncio.shield(reading)
            except asyncio.CancelledError:
                await asyncio.wait([reading])  # the thread looks at our memory until it ends
                raise
            except TransferError:
                for future in self._in_flight.copy():
                    future.cancel()  # of a mapped file that became shorter, what is posted may never go
                raise
            self._post(mapping or self._region, offset, length, index=index, free=partial(free.put_nowait, slot))
        for _ in range(SLOTS):
            await free.get()
        return digest.hexdigest()

    def _map(self, file: FileIO) -> Region:
        """Map a file until `close`: something of it may be in flight as long as the peer lives."""
        try:
            mapping = Region.from_fd(file.fileno(), writable=False)
        except RegionError as error:
            raise TransferError(f"{file.name!r}: cannot be mapped: {error}; send it without --devmem") from error
        self._mapped.append(mapping)
        return mapping

    def _post(self, region: Region, offset: int, length: int, *, index: int, free: Callable[[], None]) -> None:
        """Send chunk `index`; its memory is free again when that has ended, however it did."""

        def done(future: asyncio.Future[Status]) -> None:
            self._in_flight.discard(future)
            if not future.cancelled() and future.result() is Status.OK:
                self._on_progress(length)
            free()

        sending = self._peer.send(region, offset=offset, length=length, immediate=index)
        self._in_flight.add(sending)
        sending.add_done_callback(done)

    async def _say(self, kind: str, **fields: object) -> None:
        body = encode(kind, **fields)
        offset = SLOTS * CHUNK_BYTES
        with self._region.view(offset, length=len(body)) as view:
            view[:] = body
        status = await self._peer.send(self._region, offset=offset, length=len(body), immediate=WORD)
        if status is not Status.OK:
            raise self._peer.error()

    async def _listen(self) -> dict[str, Any]:
        with await self._peer.recv() as message:
            if message.immediate != WORD:
                raise TransferError("the receiver sent data; is it srd recv?")
            return decode_untrusted(message.gather())

    def close(self) -> None:
        """Stop the worker and give the memory back; the peer must be gone, so that nothing of it is in flight."""
        self._worker.shutdown(wait=True)
        for region in (self._region, *self._mapped):
            region.close()
