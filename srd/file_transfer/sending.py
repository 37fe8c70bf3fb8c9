"""Sending files: many over one peer, so that the round trips of small ones overlap.

Three tasks work on a session. One offers files while fewer than MAX_FILES are without a last answer; one reads the
accepted ones, one after the other, chunk by chunk into a fixed number of slots, and sends from there; one takes the
answers. A file's END follows its last chunk at once. Messages overtake each other, so the receiver may get it first.

Alternatively a file is mapped and sent directly from the page cache. It is still read for its hash, in small steps into
a buffer that stays in the CPU cache: a process that touches a mapped file beyond its new end is killed (SIGBUS),
whereas a system call returns. So a file that became shorter is an ordinary error here, too. What of it was given to
the transport and not sent cannot be sent any more (EFAULT), which looks like loss: so the file is looked at meanwhile.

A file that cannot be read or that the receiver refuses is an outcome of this file, and the others go on. A request that
ends with a status other than OK ends the session at both ends. Every wait is bounded: a chunk or a control message ends
with its request (`request_timeout_s`), or with the peer. Answers may take as long as the receiver's disk does; they are
awaited while the peer is alive, and the transport detects a dead peer within seconds.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from devmem.errors import RegionError
from devmem.region import Region
from netns.base.token_bucket import TokenBucket
from srd.errors import PeerError, UsageError
from srd.file_transfer.control import send_control
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.outgoing import OutgoingFile
from srd.file_transfer.pipe_source import PipeSource
from srd.file_transfer.protocol import (
    CHUNK_BYTES,
    CONTROL_MESSAGE,
    FILE_HASHES,
    MAX_FILES,
    MAX_PIPE_CHUNKS,
    PIPE_WINDOW,
    batches,
    decode_untrusted,
    encode,
    entries_untrusted,
    entry,
    ranges_untrusted,
    refusal,
)
from srd.file_transfer.read_ahead import Chunk, ChunkSource, ReadAhead
from srd.file_transfer.runs import ChunkRun, Range, RunKind, runs
from srd.file_transfer.source_file import SourceFile
from srd.file_transfer.worker import start_worker
from srd.notify import Notify
from srd.peer import Peer
from srd.proto.wire.status import Status

_ENDS_AT_ONCE = 16
"""Files whose END waits for company while there are others to read."""
_ABORT_WITHIN_S = 1.0
"""Timeout of ABORT: a receiver that does not get it in time detects the end of the peer instead."""
_PERMANENT = {Status.REMOTE_ERROR_BAD_LENGTH, Status.LOCAL_ERROR_BAD_LENGTH}
"""Statuses that a retry cannot avoid: the receiver accepts no message as long as a chunk."""
LOOK_EVERY_S = 0.25
"""How often it is looked whether a mapped file became shorter."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file that the receiver has verified, or a directory that it has made."""

    name: str
    size: int
    file_hash: str
    digest: str
    """Of the whole file, by `file_hash`; empty for a directory."""
    was_there: bool = False
    """Whether the receiver had the same file before, so that nothing was sent."""


FileEnd = SentFile | TransferError
"""How a file ended: of errors, a TransferInterruptedError may be tried again."""


@dataclass(eq=False, slots=True)
class _Offered:
    """A file in flight: offered, and without a last answer."""

    file: OutgoingFile
    number: int
    first: int
    """Number of its first chunk."""
    chunks_there: int = 0
    """Leading chunks that the receiver has."""
    beyond: list[Range] = field(default_factory=list)
    """Ranges of chunks that it has behind a missing one."""
    is_in_order: bool = False
    """Whether the receiver says what it has taken."""
    taken: int = 0
    next_index: int = 0
    """Of the chunk to be sent next."""
    there: str = ""
    """Hash of the file that the receiver has under this name, if it was asked for it."""
    was_there: bool = False
    digest: str = ""
    """Hash that was sent in END."""
    error: TransferError | None = None
    """Why it ended here."""
    has_ended: bool = False
    mapping: Region | None = None
    look: asyncio.TimerHandle | None = None
    """The next look at the mapped file's length; it keeps the file open."""
    in_flight: set[asyncio.Future[Status]] = field(default_factory=set)
    is_cancelled: bool = False
    """Whether chunks were cancelled, so that parts of them may be in flight until the peer has ended."""


class _EndedError(Exception):
    """The receiver has answered before it had everything."""


class FileSender:
    """Sends files to one peer. `on_progress(file, bytes)` is called for acknowledged bytes.

    With `mapped`, files are sent directly from the page cache (to a peer in plain text only), and must not be truncated
    meanwhile. `retry_for_s` is how long the receiver shall keep partial files when the peer is lost, `bucket` what
    limits the rate. `sender`: id of the process, the same in all attempts.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        on_progress: Callable[[OutgoingFile, int], None] = lambda _file, _bytes: None,
        mapped: bool = False,
        retry_for_s: int = 0,
        bucket: TokenBucket | None = None,
        sender: str | None = None,
        file_hash: str = FILE_HASHES[0],
    ) -> None:
        if mapped and not peer.can_send_mapped:
            raise UsageError("mapped: encryption would read the mapped file, and be killed if that became shorter")
        self._peer = peer
        self._on_progress = on_progress
        self._is_mapped = mapped
        self._retry_for_s = retry_for_s
        self._bucket = bucket
        self._sender = sender or secrets.token_hex(16)
        self._file_hash = file_hash
        self._sending: _Offered | None = None  # whose chunks are being posted
        self._mapped: list[Region] = []  # of which a part may be in flight until the peer has ended
        self._in_flight: set[asyncio.Future[Status]] = set()
        self._failed: Status | None = None  # status of the first chunk that failed
        self._changed = Notify()  # of anything below
        self._worker = start_worker("srd-read")
        self._ahead = ReadAhead(self._worker, is_scratch=mapped, changed=self._changed)
        self._next_file = self._next_chunk = 0
        self._waiting: deque[OutgoingFile] = deque()  # not offered yet
        self._is_offering = False
        self._open: dict[int, _Offered] = {}  # by number
        self._accepted: deque[_Offered] = deque()
        self._ends: list[dict[str, object]] = []
        self._on_end: Callable[[OutgoingFile, FileEnd], None] = lambda _file, _outcome: None

    async def send(self, path: Path) -> SentFile:
        """Send one file under its own name. Raises TransferError, or PeerError when the peer has ended."""
        outcomes: list[FileEnd] = []
        file = OutgoingFile(path, path.name, transfer=secrets.token_hex(16))
        try:
            await self.send_all([file], on_end=lambda _, outcome: outcomes.append(outcome))
        finally:
            file.close()
        (outcome,) = outcomes
        if isinstance(outcome, TransferError):
            raise outcome
        return outcome

    async def send_all(self, files: Sequence[OutgoingFile], *, on_end: Callable[[OutgoingFile, FileEnd], None]) -> None:
        """Send files and make directories; `on_end(file, outcome)` is called for each.

        Directories come after files, and a pipe comes last.

        Raises TransferError or PeerError when the session ended before: files without an outcome may be sent again
        over another peer, if it is a PeerError or a TransferInterruptedError. Files stay open until they have an
        outcome that is final.
        """
        self._waiting = deque(sorted(files, key=lambda file: (file.is_pipe, file.is_directory)))
        self._on_end = on_end
        self._is_offering = True
        listening = asyncio.ensure_future(self._listen())
        tasks = [listening, asyncio.ensure_future(self._offer_all()), asyncio.ensure_future(self._send_accepted())]
        try:
            await self._until_done(tasks)
        except (PeerError, TransferError) as error:
            if not self._peer.ended:
                may_try = isinstance(error, PeerError | TransferInterruptedError)
                await self._abort(self._told(error), again=may_try)
                raise
            await asyncio.wait([listening])  # what has arrived before the end takes precedence
            if self._open or self._waiting:
                raise _first_error(listening, error) from None
        except Exception as error:
            await self._abort(f"internal error of the sender: {type(error).__name__}: {error}", again=False)
            raise
        finally:
            for task in tasks:
                task.cancel()
            for future in self._in_flight.copy():
                future.cancel()  # of a failed session, no chunk is sent any more; do not wait for them
            await asyncio.gather(*tasks, return_exceptions=True)
            for offered in self._open.values():
                self._unmap(offered)
            self._open.clear()
            self._accepted.clear()
            self._ends.clear()

    async def _until_done(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        """Wait until the files are offered and sent. Raises the first error of a task."""
        pending = set(tasks)
        while tasks[0] in pending and len(pending) > 1:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    # -- offers ---------------------------------------------------------------------------------------------------

    async def _offer_all(self) -> None:
        files_left = 0  # as announced
        while self._waiting:
            files = self._next_files()
            if not files:
                await self._changed.wait()
                continue
            opened = await self._in_thread(lambda files=files: _open_all(files, file_hash=self._file_hash))  # type: ignore[misc]  # has a default
            for file in files:
                if (error := opened.get(file)) is not None:
                    self._report(file, error)
            ready = deque(file for file in files if file not in opened)
            for batch in batches([file.entry() for file in ready]):
                offered = [ready.popleft() for _ in batch]
                files_left = len(ready) + len(self._waiting)
                bytes_left = sum(file.size for file in [*ready, *self._waiting])
                await self._offer(offered, batch, files_left=files_left, bytes_left=bytes_left)
        if files_left:  # the last ones could not be opened
            await self._offer([], [], files_left=0, bytes_left=0)
        self._is_offering = False
        self._changed.notify()

    def _next_files(self) -> list[OutgoingFile]:
        """Take the next files, as many as may be in flight; directories only when all files have ended."""
        room, is_directory = MAX_FILES - len(self._open), self._waiting[0].is_directory
        if (is_directory and self._open) or room < min(len(self._waiting), MAX_FILES // 2):
            return []
        files: list[OutgoingFile] = []
        while self._waiting and len(files) < room and self._waiting[0].is_directory is is_directory:
            files.append(self._waiting.popleft())
        return files

    async def _offer(
        self, files: list[OutgoingFile], entries: list[dict[str, object]], *, files_left: int, bytes_left: int
    ) -> None:
        for file in files:
            self._open[self._next_file] = _Offered(file, self._next_file, self._next_chunk)
            file.acked_bytes = 0
            self._next_file += 1
            chunks = None if file.source is None else file.source.chunks
            self._next_chunk = MAX_PIPE_CHUNKS if file.is_pipe else self._next_chunk + (chunks or 0)
        if self._next_chunk > CONTROL_MESSAGE:
            raise TransferInterruptedError(f"a peer has numbers for {CONTROL_MESSAGE} chunks only")
        await self._send_control(
            "offer",
            files=entries,
            sender=self._sender,
            file_hash=self._file_hash,
            chunk_bytes=CHUNK_BYTES,
            retry_for_s=self._retry_for_s,
            files_left=files_left,
            bytes_left=bytes_left,
        )

    # -- answers --------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            with await self._peer.recv() as message:
                if message.immediate != CONTROL_MESSAGE:
                    raise TransferError("the receiver sent data; is it srd recv?")
                answer = decode_untrusted(message.gather())
            if answer["kind"] == "refuse":
                raise refusal(answer, default="refused without a reason")
            if answer["kind"] != "answer":
                raise TransferError(f"{answer['kind'][:80]!r} where an answer was expected; is it srd recv?")
            for each in entries_untrusted(answer):
                self._take(each)
            self._changed.notify()

    def _take(self, answer: dict[str, Any]) -> None:
        offered = self._open.get(answer["file"])
        if offered is None:
            if answer["file"] >= self._next_file:
                raise TransferError("the receiver answers for a file that was not offered; is it srd recv?")
            return  # it failed, and the answers overtook each other
        file = offered.file
        if "reason" in answer:
            self._end(offered, offered.error or refusal(answer, default="refused without a reason"))
        elif "made" in answer and file.is_directory:
            self._end(offered, SentFile(file.name, 0, self._file_hash, ""))
        elif "taken" in answer:
            self._on_taken(offered, answer["taken"])
        elif "digest" in answer:
            size, digest = _source_of(offered).size, offered.digest
            if not digest or answer["digest"] != digest:
                self._end(offered, TransferError(f"{file.path}: the receiver could not verify it"))
            else:
                self._end(offered, SentFile(file.name, size, self._file_hash, digest, was_there=offered.was_there))
        else:
            self._accept(offered, answer)

    def _accept(self, offered: _Offered, answer: dict[str, Any]) -> None:
        source, chunks, there = _source_of(offered), answer.get("chunks"), answer.get("has")
        if isinstance(there, str) and offered.file.if_differs and not offered.there:
            offered.there = there
        elif not _is_count(chunks, most=_chunks_so_far(source)) or offered in self._accepted:
            raise TransferError(f"{offered.file.path}: the receiver has chunks that it cannot have; is it srd recv?")
        else:
            offered.there = ""
            offered.chunks_there = offered.next_index = offered.taken = chunks
            offered.is_in_order = answer.get("in_order") is True
            offered.beyond = ranges_untrusted(answer.get("beyond", []), first=chunks, end=_chunks_so_far(source))
            there = chunks + sum(count for _, count in offered.beyond)
            self._progress(offered, min(there * CHUNK_BYTES, source.size))
        self._accepted.append(offered)

    def _on_taken(self, offered: _Offered, taken: object) -> None:
        """Note what the receiver has written of a file that it writes in order. Answers overtake each other."""
        if not _is_count(taken, most=offered.next_index):
            raise TransferError(f"{offered.file.path}: the receiver has chunks that it cannot have; is it srd recv?")
        offered.taken = max(offered.taken, taken)
        _source_of(offered).take(offered.taken)

    def _end(self, offered: _Offered, outcome: FileEnd) -> None:
        del self._open[offered.number]
        offered.has_ended = True
        if isinstance(outcome, SentFile) and offered.file.source is not None:
            self._progress(offered, outcome.size - offered.file.acked_bytes)  # ACKs may come after the answer
        self._unmap(offered)
        self._report(offered.file, outcome)

    def _report(self, file: OutgoingFile, outcome: FileEnd) -> None:
        if not isinstance(outcome, TransferInterruptedError):
            file.close()
        self._on_end(file, outcome)

    def _progress(self, offered: _Offered, size_bytes: int) -> None:
        if size_bytes:
            offered.file.acked_bytes += size_bytes
            self._on_progress(offered.file, size_bytes)

    # -- chunks ---------------------------------------------------------------------------------------------------

    async def _send_accepted(self) -> None:
        while self._is_offering or self._open:
            if self._accepted:
                await self._send_file(self._accepted.popleft())
            if self._ends and (not self._accepted or len(self._ends) >= _ENDS_AT_ONCE):
                ends, self._ends = self._ends, []
                for batch in batches(ends):
                    await self._send_control("end", files=batch)
            elif not self._accepted and (self._is_offering or self._open):
                self._check_chunks()
                await self._changed.wait()

    async def _send_file(self, offered: _Offered) -> None:
        """Send a file's chunks, and note its END. A file that cannot be read is noted as aborted."""
        source = _source_of(offered)
        self._sending = offered
        try:
            source.check_from(offered.chunks_there)
            await self._send_runs(offered, source)
            if isinstance(source, SourceFile) and source.is_suspect:
                await self._compare(offered, source)
        except TransferInterruptedError:
            raise
        except TransferError as error:
            self._give_up(offered, error)
            return
        finally:
            self._sending = None
        offered.digest = source.digest.hexdigest()
        offered.was_there = offered.digest == offered.there
        chunks = source.chunks if offered.file.is_pipe else None
        self._ends.append(entry(file=offered.number, digest=offered.digest, chunks=chunks))

    def _give_up(self, offered: _Offered, error: TransferError) -> None:
        """Send no more of a file, and note its END."""
        offered.error = error
        self._cancel_chunks(offered)
        self._ends.append(entry(file=offered.number, reason=self._told(error), again=False))

    def _look_at_mapped(self, offered: _Offered, source: SourceFile) -> None:
        """Give a mapped file up that became shorter, until it has ended."""
        if offered.has_ended or offered.error is not None or offered.number not in self._open:
            return
        try:
            source.check_mapped()
        except TransferError as error:
            if self._sending is offered:  # which waits for a slot, and raises the error
                offered.error = error
                self._cancel_chunks(offered)
            else:
                self._give_up(offered, error)
            self._changed.notify()
            return
        offered.look = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look_at_mapped, offered, source)

    def _cancel_chunks(self, offered: _Offered) -> None:
        """Send no more of a file that failed here: of a mapped one that became shorter nothing can be sent."""
        for future in offered.in_flight.copy():
            offered.is_cancelled = True
            future.cancel()

    async def _send_runs(self, offered: _Offered, source: ChunkSource) -> None:
        """Send what the receiver does not have; a hole by its name, and to standard output as zeros."""
        if isinstance(source, PipeSource):
            await self._send_chunks(offered, source, first=offered.chunks_there, end=None)
            return
        there = [(0, source.chunks if offered.there else offered.chunks_there), *offered.beyond]
        for run in runs(source.chunks, holes=[] if offered.is_in_order else source.holes, there=there):
            if run.kind is RunKind.DATA:
                await self._send_chunks(offered, source, first=run.first, end=run.end)
            elif run.kind is RunKind.HOLE:
                await self._send_control("holes", first=offered.first + run.first, chunks=run.end - run.first)
            await self._hash_to(offered, source, run)
            if offered.has_ended:
                return

    async def _hash_to(self, offered: _Offered, source: SourceFile, run: ChunkRun) -> None:
        """Hash what was not read to be sent, unless an earlier attempt has."""
        while source.hashed_chunks < run.end and not offered.has_ended:
            self._check_chunks()
            await self._in_thread(lambda: source.hash_to(run.end, are_zeros=run.kind is RunKind.HOLE))

    async def _compare(self, offered: _Offered, source: SourceFile) -> None:
        """Hash a file once more that may have been changed. Raises TransferError if it was."""
        sent = source.digest.hexdigest()
        source.hash_again()
        await self._hash_to(offered, source, ChunkRun(RunKind.DATA, 0, source.chunks))
        if not offered.has_ended and source.digest.hexdigest() != sent:
            raise source.changed()

    async def _send_chunks(self, offered: _Offered, source: ChunkSource, *, first: int, end: int | None) -> None:
        if self._is_mapped and isinstance(source, SourceFile) and source.size and offered.mapping is None:
            offered.mapping = self._map(source)
            self._look_at_mapped(offered, source)

        def check() -> None:
            self._check_chunks()
            if offered.has_ended:
                raise _EndedError  # refused meanwhile: its disk is full, for example
            if offered.error is not None:
                raise offered.error

        self._ahead.begin(source, first=first, end=end)
        try:
            while chunks := await self._ahead.next(check):
                if offered.is_in_order:
                    await self._until_taken(offered, chunks[-1].index - PIPE_WINDOW + 1, check)
                if offered.is_in_order or source.chunks != 1:
                    self._post_hashes(offered, chunks)
                for chunk in chunks:
                    if self._bucket is not None:
                        self._bucket.charge(chunk.length, now=time.monotonic())
                        if delay_s := self._bucket.delay_s(time.monotonic()):
                            await asyncio.sleep(delay_s)
                    self._post(offered, chunk)
        except _EndedError:
            return
        finally:
            await self._ahead.stop()

    async def _until_taken(self, offered: _Offered, taken: int, check: Callable[[], None]) -> None:
        """Wait until the receiver has taken so many chunks."""
        while offered.taken < taken:
            check()
            await self._changed.wait()

    def _check_chunks(self) -> None:
        """Raise if a chunk failed."""
        if self._failed is not None:
            if self._peer.ended:
                raise self._peer.error()
            kind = TransferError if self._failed in _PERMANENT else TransferInterruptedError
            raise kind(f"the receiver is alive, but a chunk ended with {self._failed.name}")

    def _map(self, source: SourceFile) -> Region:
        try:
            return Region.from_fd(source.fd, writable=False)
        except RegionError as error:
            raise TransferError(f"{source.path}: cannot be mapped: {error}; send it without --devmem") from error

    def _unmap(self, offered: _Offered) -> None:
        """Close the mapping of a file that has ended: at once, or when the peer has, if parts are in flight."""
        if offered.look is not None:
            offered.look.cancel()
        if offered.mapping is not None:
            self._mapped.append(offered.mapping)
            if not (offered.in_flight or offered.is_cancelled):
                self._mapped.pop().close()
            offered.mapping = None

    def _post_hashes(self, offered: _Offered, chunks: Sequence[Chunk]) -> None:
        """Send the digests of chunks, right before these: nothing waits for their acknowledgement."""
        digests = [chunk.digest.hex() for chunk in chunks]
        body = encode("hashes", first=offered.first + chunks[0].index, digests=digests)
        sending = asyncio.ensure_future(send_control(self._peer, body, within_s=None))
        self._in_flight.add(sending)
        sending.add_done_callback(self._on_posted)

    def _on_posted(self, future: asyncio.Future[Status]) -> Status:
        """Note the status of a chunk, or of digests."""
        self._in_flight.discard(future)
        status = Status.FLUSHED if future.cancelled() else future.result()
        if status is not Status.OK:
            self._failed = self._failed or status
        self._changed.notify()
        return status

    def _post(self, offered: _Offered, chunk: Chunk) -> None:
        """Send a chunk; its slot is free again when the request has completed with any status."""

        def done(future: asyncio.Future[Status]) -> None:
            offered.in_flight.discard(future)
            if offered.error is not None:
                self._in_flight.discard(future)
            elif self._on_posted(future) is Status.OK and not offered.has_ended:
                self._progress(offered, chunk.length)
            self._ahead.give_back(chunk.slot)

        mapping = offered.mapping
        sending = self._peer.post_send(
            mapping or self._ahead.region,
            offset=(chunk.index if mapping else chunk.slot) * CHUNK_BYTES,
            length=chunk.length,
            immediate=offered.first + chunk.index,
        )
        offered.next_index = chunk.index + 1
        self._in_flight.add(sending)
        offered.in_flight.add(sending)
        sending.add_done_callback(done)

    # -- both -----------------------------------------------------------------------------------------------------

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Run a blocking call in the worker thread. When cancelled, wait for it: it uses the region and the files."""
        calling = asyncio.get_running_loop().run_in_executor(self._worker, call)
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            await asyncio.wait([calling])
            raise

    async def _send_control(self, kind: str, **fields: object) -> None:
        status = await send_control(self._peer, encode(kind, **fields), within_s=None)
        if status is not Status.OK:
            if self._peer.ended:
                raise self._peer.error()
            raise TransferInterruptedError(f"the receiver is alive, but {kind.upper()} ended with {status.name}")

    async def _abort(self, reason: str, *, again: bool) -> None:
        """Send ABORT to the receiver."""
        for future in self._in_flight.copy():
            future.cancel()  # before ABORT, which must not wait for their credit
        with suppress(TimeoutError, PeerError, TransferError):
            async with asyncio.timeout(_ABORT_WITHIN_S):
                await self._send_control("abort", reason=reason, again=again)

    def _told(self, error: Exception) -> str:
        """Return an error as the receiver is told, without the local directory."""
        text = str(error)
        for offered in self._open.values():
            text = text.replace(str(offered.file.path), offered.file.name)
        return text

    def close(self) -> None:
        """Stop the worker and release the memory; the peer must have ended, so that nothing is in flight."""
        self._worker.shutdown(wait=True)
        self._ahead.close()
        for region in self._mapped:
            region.close()


def _open_all(files: list[OutgoingFile], *, file_hash: str) -> dict[OutgoingFile, TransferError]:
    """Open files; return those that cannot be, with the errors."""
    errors = {}
    for file in files:
        try:
            if not file.is_directory:
                file.open(file_hash=file_hash)
        except TransferError as error:
            errors[file] = error
    return errors


def _is_count(value: object, *, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _chunks_so_far(source: ChunkSource) -> int:
    """Return the chunks of a file, or those of a pipe that were read."""
    return source.hashed_chunks if source.chunks is None else source.chunks


def _source_of(offered: _Offered) -> ChunkSource:
    """Return the open file. Raises TransferError for an answer that a directory cannot have."""
    if offered.file.source is None:
        raise TransferError(f"{offered.file.path}: the receiver takes the directory for a file; is it srd recv?")
    return offered.file.source


def _first_error(listening: asyncio.Future[None], error: PeerError | TransferError) -> BaseException:
    """Return what the receiver said before the peer ended, if it refused all; else `error`."""
    said = None if listening.cancelled() else listening.exception()
    return said if isinstance(said, TransferError) else error
