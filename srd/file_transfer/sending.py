"""Sending files: chunks are read ahead into a fixed number of slots, hashed once, and sent from there (read_ahead.py).

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devmem.errors import RegionError
from devmem.region import Region
from srd.errors import PeerError, UsageError
from srd.file_transfer.protocol import (
    CHUNK_BYTES,
    CONTROL_MESSAGE,
    FILE_HASHES,
    TransferError,
    TransferInterruptedError,
    decode_untrusted,
    encode,
    reason_of,
)
from srd.file_transfer.read_ahead import SLOTS, Chunk, ReadAhead
from srd.file_transfer.source_file import SourceFile
from srd.file_transfer.transport import Peer
from srd.file_transfer.worker import start_worker
from srd.notify import Notify
from srd.proto.wire.status import Status

_CONTROL_ROOM = 64 << 10
_HASHES_ROOM = 4 << 10
"""For the HASHES of a batch of chunks; it belongs to the slot of the first one."""
_ABORT_WITHIN_S = 1.0
"""Timeout of ABORT: a receiver that does not get it in time detects the end of the peer instead."""
_PERMANENT = {Status.REMOTE_ERROR_BAD_LENGTH, Status.LOCAL_ERROR_BAD_LENGTH}
"""Statuses that a retry cannot avoid: the receiver accepts no message as long as a chunk."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A file that the receiver has verified."""

    name: str
    size: int
    file_hash: str
    digest: str


class _VerdictArrived(Exception):  # noqa: N818 - not an error
    """The receiver has answered before it had everything."""


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
        self._failed: Status | None = None  # status of the first chunk that failed
        self._changed = Notify()  # a slot is free, a chunk has failed, or the verdict has arrived
        self._worker = start_worker("srd-read")
        self._ahead = ReadAhead(self._worker, is_scratch=mapped, changed=self._changed)
        self._region = Region(_CONTROL_ROOM + SLOTS * _HASHES_ROOM, name="srd-control")
        self._uses: dict[int, int] = {}  # requests in flight, by slot

    async def send(self, path: Path, *, file_hash: str = FILE_HASHES[0]) -> Sent:
        """Send one file. Raises TransferError, or PeerError when the peer has ended."""
        with SourceFile(path, file_hash=file_hash) as source:
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
            file_hash=source.digest.name,
        )
        first = self._accepted(await self._listen(), source)
        # The verdict may arrive early: a receiver whose disk is full sends it at once.
        verdict = asyncio.ensure_future(self._listen())
        verdict.add_done_callback(lambda _: self._changed.notify())
        digest: str | None = None
        try:
            if first:
                self._on_progress(min(first * CHUNK_BYTES, source.size))
            if await self._send_chunks(source, first=first, verdict=verdict):
                digest = source.digest.hexdigest()
                await self._send_control("end", digest=digest)
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
        if digest is None or message["kind"] != "verdict" or message.get("digest") != digest:
            raise _refusal(message, default=f"{source.path}: the receiver could not verify it")
        return Sent(source.path.name, source.size, source.digest.name, digest)

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
        self._failed = None
        mapping = self._map(source) if self._is_mapped and source.size else None

        def check() -> None:
            if verdict.done():
                raise _VerdictArrived
            self._check_chunks()

        self._ahead.begin(source, first=first)
        try:
            while chunks := await self._ahead.next(check):
                self._post_hashes(chunks)
                for chunk in chunks:
                    offset = (chunk.index if mapping else chunk.slot) * CHUNK_BYTES
                    length = source.length(chunk.index)
                    self._post(mapping or self._ahead.region, offset, length, immediate=chunk.index, slot=chunk.slot)
            await self._ahead.drain(check)
        except _VerdictArrived:
            return False
        finally:
            await self._ahead.stop()
        return True

    def _check_chunks(self) -> None:
        """Raise if a chunk failed."""
        if self._failed is not None:
            if self._peer.ended:
                raise self._peer.error()
            kind = TransferError if self._failed in _PERMANENT else TransferInterruptedError
            raise kind(f"the receiver is alive, but a chunk ended with {self._failed.name}")

    def _map(self, source: SourceFile) -> Region:
        """Map a file until `close`: parts of it may be in flight until the peer has ended."""
        try:
            mapping = Region.from_fd(source.fd, writable=False)
        except RegionError as error:
            raise TransferError(f"{source.path}: cannot be mapped: {error}; send it without --devmem") from error
        self._mapped.append(mapping)
        return mapping

    def _post_hashes(self, chunks: Sequence[Chunk]) -> None:
        """Send the digests of chunks, right before these: nothing waits for their acknowledgement."""
        body = encode("hashes", first=chunks[0].index, digests=[chunk.digest.hex() for chunk in chunks])
        slot = chunks[0].slot
        offset = _CONTROL_ROOM + slot * _HASHES_ROOM
        with self._region.view(offset, length=len(body)) as view:
            view[:] = body
        self._post(self._region, offset, len(body), immediate=CONTROL_MESSAGE, slot=slot)

    def _post(self, region: Region, offset: int, length: int, *, immediate: int, slot: int) -> None:
        """Send a message; its slot is free again when its requests have completed with any status."""

        def done(future: asyncio.Future[Status]) -> None:
            self._in_flight.discard(future)
            status = Status.FLUSHED if future.cancelled() else future.result()
            if status is not Status.OK:
                self._failed = self._failed or status
            elif immediate != CONTROL_MESSAGE:
                self._on_progress(length)
            self._uses[slot] -= 1
            if not self._uses[slot]:
                self._ahead.give_back(slot)

        sending = self._peer.post_send(region, offset=offset, length=length, immediate=immediate)
        self._uses[slot] = self._uses.get(slot, 0) + 1
        self._in_flight.add(sending)
        sending.add_done_callback(done)

    async def _send_control(self, kind: str, **fields: object) -> None:
        body = encode(kind, **fields)
        with self._region.view(0, length=len(body)) as view:
            view[:] = body
        status = await self._peer.post_send(self._region, offset=0, length=len(body), immediate=CONTROL_MESSAGE)
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
        self._ahead.close()
        for region in (self._region, *self._mapped):
            region.close()


def _refusal(message: dict[str, Any], *, default: str) -> TransferError:
    """Return the error for a refusal or a negative verdict."""
    kind = TransferInterruptedError if message.get("again") is True else TransferError
    return kind(reason_of(message, default=default))
