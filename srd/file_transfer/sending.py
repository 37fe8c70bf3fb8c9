"""Sending files: chunks are read into a fixed number of slots, hashed once, and sent from there.

Alternatively the file is mapped and sent directly from the page cache. It is still read for its hash, in small steps
into a buffer that stays in the CPU cache: a process that touches a mapped file beyond its new end is killed (SIGBUS),
whereas a system call returns. So a file that became shorter is an ordinary error here, too.

Every wait is bounded. A chunk or a control message ends with its request (`request_timeout_s`), or with the peer.
ACCEPT and VERDICT may take as long as the receiver's disk does; they are awaited while the peer is alive, and the
transport detects a dead peer within seconds. A chunk that completes with a status other than OK ends the attempt at
both ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devmem.errors import RegionError
from devmem.region import Region
from srd.errors import PeerError, UsageError
from srd.file_transfer.protocol import (
    CHUNK_BYTES,
    CONTROL_MESSAGE,
    TransferError,
    TransferInterruptedError,
    decode_untrusted,
    encode,
    reason_of,
)
from srd.file_transfer.source_file import SourceFile
from srd.file_transfer.transport import Peer
from srd.file_transfer.worker import start_worker
from srd.notify import Notify
from srd.proto.wire.status import Status

SLOTS = 16
"""Chunks in memory, read ahead and in flight: enough for a fast link's bandwidth-delay product."""
_SCRATCH_BYTES = 256 << 10
"""Read at once from a mapped file, for hashing only: small enough for a core's own cache."""
_CONTROL_ROOM = 64 << 10
_ABORT_WITHIN_S = 1.0
"""Timeout of ABORT: a receiver that does not get it in time detects the end of the peer instead."""
_PERMANENT = {Status.REMOTE_ERROR_BAD_LENGTH, Status.LOCAL_ERROR_BAD_LENGTH}
"""Statuses that a retry cannot avoid: the receiver accepts no message as long as a chunk."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A file that the receiver has verified."""

    name: str
    size: int
    sha256: str


class FileSender:
    """Sends files to one peer, one after the other. `on_progress(bytes)` is called for acknowledged bytes.

    With `mapped`, files are sent directly from the page cache (to a peer in plain text only), and must not be truncated
    meanwhile. `retry_for_s` is how long the receiver shall keep the partial file when the peer is lost, `files_left`
    how many files will be offered after this one, on this peer or another.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        on_progress: Callable[[int], None],
        mapped: bool = False,
        retry_for_s: int = 0,
        files_left: int = 0,
    ) -> None:
        if mapped and not peer.can_send_mapped:
            raise UsageError("mapped: encryption would read the mapped file, and be killed if that became shorter")
        self._peer = peer
        self._on_progress = on_progress
        self._is_mapped = mapped
        self._retry_for_s = retry_for_s
        self._files_left = files_left
        self._mapped: list[Region] = []
        self._in_flight: set[asyncio.Future[Status]] = set()
        self._free: list[int] = []
        self._failed: Status | None = None  # status of the first chunk that failed
        self._changed = Notify()  # a slot is free, a chunk has failed, or the verdict has arrived
        self._worker = start_worker("srd-read")
        self._region = Region(SLOTS * CHUNK_BYTES + _CONTROL_ROOM, name="srd-send")

    async def send(self, path: Path) -> Sent:
        """Send one file. Raises TransferError, or PeerError when the peer has ended."""
        with SourceFile(path) as source:
            return await self.attempt(source)

    async def attempt(self, source: SourceFile) -> Sent:
        """Send the chunks of a file that the receiver does not have yet.

        Raises TransferError; TransferInterruptedError or PeerError (the peer has ended) when another attempt may
        succeed. That needs a new peer: on this one, messages of the failed attempt may still arrive.
        """
        source.check_unchanged()
        await self._send_control(
            "offer",
            name=source.path.name,
            size=source.size,
            chunk_bytes=CHUNK_BYTES,
            transfer=source.transfer,
            retry_for_s=self._retry_for_s,
            files_left=self._files_left,
        )
        first = self._accepted(await self._listen(), source)
        # The verdict may arrive early: a receiver whose disk is full sends it at once.
        verdict = asyncio.ensure_future(self._listen())
        verdict.add_done_callback(lambda _: self._changed.notify())
        sha256: str | None = None
        try:
            if first:
                self._on_progress(min(first * CHUNK_BYTES, source.size))
            if await self._send_chunks(source, first=first, verdict=verdict):
                sha256 = source.digest.hexdigest()
                await self._send_control("end", sha256=sha256)
            message = await verdict
        except (PeerError, TransferInterruptedError) as error:
            message = await self._final_answer(verdict, error)
        except TransferError as error:
            name = source.path.name  # do not reveal the local directory to the receiver
            await self._abort(str(error).replace(str(source.path), name), again=False)
            raise
        finally:
            verdict.cancel()
            for future in self._in_flight.copy():
                future.cancel()  # of a failed file, no chunk is sent any more; do not wait for them
        if sha256 is None or message["kind"] != "verdict" or message.get("sha256") != sha256:
            raise _refusal(message, default=f"{source.path}: the receiver could not verify it")
        return Sent(source.path.name, source.size, sha256)

    def _accepted(self, answer: dict[str, Any], source: SourceFile) -> int:
        """Return how many leading chunks the receiver has. Raises TransferError when it refused."""
        if answer["kind"] != "accept":
            raise _refusal(answer, default="refused without a reason")
        chunks = answer.get("chunks", 0)
        if not isinstance(chunks, int) or not 0 <= chunks <= source.hashed_chunks:
            raise TransferError(f"{source.path}: the receiver has chunks that were never sent; is it srd recv?")
        return int(chunks)

    async def _final_answer(
        self, verdict: asyncio.Future[dict[str, Any]], error: PeerError | TransferInterruptedError
    ) -> dict[str, Any]:
        """Return the verdict, if it has arrived: it takes precedence over the end of the peer.

        Messages can still be received after their peer has ended. Without a verdict, abort the attempt if the receiver
        is alive, and raise `error`.
        """
        if not self._peer.ended and not verdict.done():
            await self._abort(str(error), again=True)
            raise error
        await asyncio.wait([verdict])
        if verdict.exception() is not None:
            raise error
        return verdict.result()

    async def _abort(self, reason: str, *, again: bool) -> None:
        """Send ABORT to the receiver, unless the peer has ended."""
        for future in self._in_flight.copy():
            future.cancel()  # before ABORT, which must not wait for their credit
        if self._peer.ended:
            return
        sending = asyncio.ensure_future(self._send_control("abort", reason=reason, again=again))
        await asyncio.wait([sending], timeout=_ABORT_WITHIN_S)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    async def _send_chunks(self, source: SourceFile, *, first: int, verdict: asyncio.Future[dict[str, Any]]) -> bool:
        """Send every chunk from `first` on; return False when the verdict arrived before the end."""
        self._free, self._failed = list(range(SLOTS)), None
        mapping = self._map(source) if self._is_mapped and source.size else None
        for index in range(first, source.chunks):
            if not await self._wait_for_slots(1, verdict):
                return False
            slot = self._free.pop()
            at = slot * CHUNK_BYTES
            await self._read(source, index, at=at)
            offset = index * CHUNK_BYTES if mapping else at
            self._post(mapping or self._region, offset, source.length(index), index=index, slot=slot)
        return await self._wait_for_slots(SLOTS, verdict)

    async def _wait_for_slots(self, count: int, verdict: asyncio.Future[dict[str, Any]]) -> bool:
        """Wait until `count` slots are free; return False when the verdict arrives first. Raises if a chunk failed."""
        while True:
            if verdict.done():
                return False
            if self._failed is not None:
                if self._peer.ended:
                    raise self._peer.error()
                kind = TransferError if self._failed in _PERMANENT else TransferInterruptedError
                raise kind(f"the receiver is alive, but a chunk ended with {self._failed.name}")
            if len(self._free) >= count:
                return True
            await self._changed.wait()

    async def _read(self, source: SourceFile, index: int, *, at: int) -> None:
        """Read a chunk in the worker thread."""
        step_bytes = _SCRATCH_BYTES if self._is_mapped else CHUNK_BYTES

        def read() -> None:
            with self._region.view(at, length=step_bytes) as view:
                source.read(index, into=view, step_bytes=step_bytes)

        reading = asyncio.get_running_loop().run_in_executor(self._worker, read)
        try:
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            await asyncio.wait([reading])  # the thread uses the region until it ends
            raise

    def _map(self, source: SourceFile) -> Region:
        """Map a file until `close`: parts of it may be in flight until the peer has ended."""
        try:
            mapping = Region.from_fd(source.fd, writable=False)
        except RegionError as error:
            raise TransferError(f"{source.path}: cannot be mapped: {error}; send it without --devmem") from error
        self._mapped.append(mapping)
        return mapping

    def _post(self, region: Region, offset: int, length: int, *, index: int, slot: int) -> None:
        """Send chunk `index`; its slot is free again when the request has completed with any status."""

        def done(future: asyncio.Future[Status]) -> None:
            self._in_flight.discard(future)
            status = Status.FLUSHED if future.cancelled() else future.result()
            if status is Status.OK:
                self._on_progress(length)
            elif self._failed is None:
                self._failed = status
            self._free.append(slot)
            self._changed.notify()

        sending = self._peer.post_send(region, offset=offset, length=length, immediate=index)
        self._in_flight.add(sending)
        sending.add_done_callback(done)

    async def _send_control(self, kind: str, **fields: object) -> None:
        body = encode(kind, **fields)
        offset = SLOTS * CHUNK_BYTES
        with self._region.view(offset, length=len(body)) as view:
            view[:] = body
        status = await self._peer.post_send(self._region, offset=offset, length=len(body), immediate=CONTROL_MESSAGE)
        if status is not Status.OK:
            if self._peer.ended:
                raise self._peer.error()
            raise TransferInterruptedError(f"the receiver is alive, but {kind.upper()} ended with {status.name}")

    async def _listen(self) -> dict[str, Any]:
        with await self._peer.recv() as message:
            if message.immediate != CONTROL_MESSAGE:
                raise TransferError("the receiver sent data; is it srd recv?")
            return decode_untrusted(message.gather())

    def close(self) -> None:
        """Stop the worker and release the memory; the peer must have ended, so that nothing is in flight."""
        self._worker.shutdown(wait=True)
        for region in (self._region, *self._mapped):
            region.close()


def _refusal(message: dict[str, Any], *, default: str) -> TransferError:
    """Return the error for a refusal or a negative verdict."""
    kind = TransferInterruptedError if message.get("again") is True else TransferError
    return kind(reason_of(message, default=default))
