"""Receiving files: a worker thread writes chunks from the region where they landed, to files or to standard output.

A peer that sends nothing occupies no thread, descriptor or memory of its own: the resources of a session are allocated
when its first offer has arrived, for a bounded number of sessions, of files in each, and of open files in all.

Two tasks work on a session. One takes messages as they arrive: it only notes what is to be done. The other does it, in
the order open, write, finish, each time for all files that wait; what it answers goes out in batches, too. What fails
is a file, and the others go on; a message that no sender sends ends the session.

Every wait is bounded: an offer must arrive within OFFER_WITHIN_S, data at least every STALL_S, and a control message
must complete within `control.WITHIN_S`. Every wait also ends when the peer ends. What goes through a pipe may take
as long as who writes into it, or reads from it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from netns.base.addresses import host_port_text
from netns.base.standard_streams import is_output_error
from srd.errors import PeerError
from srd.file_transfer.control import send_control
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.incoming import Announcement, Arrival, Hole, Incoming, finish_all
from srd.file_transfer.protocol import (
    CONTROL_MESSAGE,
    MAX_FILES,
    MAX_PIPE_CHUNKS,
    PIPE_WINDOW,
    Offers,
    batches,
    decode_untrusted,
    digests_untrusted,
    encode,
    entries_untrusted,
    entry,
    holes_untrusted,
    offers_untrusted,
    pipe_chunks_untrusted,
    refusal,
)
from srd.file_transfer.sessions import NotStartedError, TransferSessions
from srd.file_transfer.store_queue import Failures, Item, StoreQueue
from srd.file_transfer.watcher import ReceivedFile, StallMeter, Watcher
from srd.file_transfer.worker import start_worker
from srd.message import Message
from srd.notify import Notify
from srd.peer import Peer
from srd.proto.wire.status import Status

OFFER_WITHIN_S = 10.0
"""Longest time that a peer may be open without a transfer. A sender offers its files at once."""
STALL_S = 60.0
"""Longest time without data while nothing waits for the disk. The transport detects a dead sender within seconds; this
bounds one that is alive but sends nothing, as it occupies one of the MAX_TRANSFERS."""
SLOWEST_HASH_BYTES_PER_S = 50 << 20
"""A sender that compares a file with the one that is there has longer, by its size over this."""
_SAY_TAKEN_EVERY = PIPE_WINDOW // 8
"""Chunks that are written in order, and their sender does not know of: few, so that it never waits for the answer."""
_MAX_ANSWERS = 4 * MAX_FILES
"""Answers that wait for a peer to take them. A sender has three for each of its files."""
T = TypeVar("T")


class FileReceiver:
    """Receives files from one peer until it has ended."""

    def __init__(self, peer: Peer, *, sessions: TransferSessions, watcher: Watcher | None = None) -> None:
        self.ended = asyncio.Event()
        self._peer = peer
        self._sessions = sessions
        self._watcher = watcher or Watcher()
        self._running: asyncio.Future[None] | None = None
        self._is_superseded = False
        self._stop = threading.Event()
        self._worker = start_worker("srd-store")  # makes its thread when it is first used
        self._files: dict[int, Incoming] = {}  # by number, in this order; without a last answer
        self._next_file = self._next_chunk = 0
        self._files_left = 0
        self._may_retry = False  # a file was refused for now, or failed and is kept
        self._to_open: deque[Incoming] = deque()
        self._work = Notify()
        self._queue = StoreQueue(start=self._start, on_stored=self._on_stored, on_error=self._work.notify)
        self._to_close: list[tuple[Incoming, bool]] = []  # and whether it is kept
        self._answers: list[dict[str, object]] = []
        self._is_busy = False  # the thread works
        self._is_blocked = False  # no room for an open file
        self._is_done_told = True
        self._unkept = set[str]()  # what was said not to be kept
        self._stall = StallMeter(lambda: self._peer.landed_bytes)

    def supersede(self) -> None:
        """End this session because its sender has opened another."""
        self._is_superseded = True
        if self._running is not None:
            self._running.cancel()

    async def receive(self) -> None:
        """Receive files until the peer has ended.

        Raises NotStartedError, which leaves nothing behind. What happens to files, also when the peer is lost or sends
        what no sender sends, is told to the watcher.
        """
        try:
            offers = await self._first_offers()
            if offers is None:
                return
            await self._sessions.begin(self, offers)
        except TransferError as error:
            is_busy = isinstance(error, NotStartedError) and not isinstance(error, _InvalidOfferError)
            await self._send_control("refuse", reason=str(error), again=is_busy)
            raise error if isinstance(error, NotStartedError) else NotStartedError(str(error)) from error
        except Exception as error:
            await self._refuse_for(error)
            raise
        try:
            self._running = asyncio.ensure_future(self._run(offers))
            await self._running
        except (PeerError, TransferError):
            pass  # the watcher knows
        except asyncio.CancelledError:
            if not self._is_superseded:
                raise
        finally:
            self._sessions.end(self)
            self._worker.shutdown(wait=False)

    async def _run(self, offers: Offers) -> None:
        tasks: list[asyncio.Future[None]] = []
        error: BaseException | None = None
        try:
            with self._stall:
                self._watcher.on_begin(offers)
                self._take_offers(offers)
                tasks = [asyncio.ensure_future(each) for each in (self._listen(), self._store(), self._answer())]
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        except BaseException as caught:
            error = caught
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._stop.set()
            await self._queue.close()
            await self._end_all(error)

    # -- messages -------------------------------------------------------------------------------------------------

    async def _first_offers(self) -> Offers | None:
        """Return the first OFFER; None when the peer closed instead.

        Raises NotStartedError when the peer is lost, sends nothing, or sends an invalid message.
        """
        try:
            async with asyncio.timeout(OFFER_WITHIN_S):
                decoded = _control_untrusted(await self._peer.recv())
        except TimeoutError:
            raise NotStartedError(f"{self._name}: offered nothing within {OFFER_WITHIN_S:g} s") from None
        except PeerError as error:
            if error.status == 0:
                return None
            raise NotStartedError(str(error)) from error
        except TransferError as error:
            raise _InvalidOfferError(f"{self._name}: {error}") from error
        try:
            return offers_untrusted(decoded)
        except TransferError as error:
            raise _InvalidOfferError(str(error)) from error

    async def _listen(self) -> None:
        """Take messages until the peer has ended. Raises PeerError if it was lost, TransferError for invalid ones."""
        while True:
            try:
                message = await self._next()
            except PeerError as error:
                if error.status == 0 and not self._files:
                    return
                raise
            if message.immediate is None:
                message.release()
                raise TransferError("a message that is neither a chunk nor a control message")
            if message.immediate == CONTROL_MESSAGE:
                with message:
                    control = decode_untrusted(message.gather())
                self._take_control(control)
            else:
                self._take_chunk(message, message.immediate)
            self._work.notify()

    async def _next(self) -> Message:
        """Return the next message. Raises TransferInterruptedError if none arrives though nothing is being stored."""
        while True:
            landed_bytes = self._peer.landed_bytes
            if any(file.offer.is_pipe for file in self._files.values()):
                return await self._peer.recv()
            within_s = STALL_S if self._files or self._files_left else OFFER_WITHIN_S
            within_s += sum(file.offer.size for file in self._files.values() if file.there) / SLOWEST_HASH_BYTES_PER_S
            try:
                async with asyncio.timeout(within_s):
                    return await self._peer.recv()
            except TimeoutError:
                is_idle = self._queue.is_idle and not (self._is_busy or self._to_open or self._answers)
                if self._peer.landed_bytes == landed_bytes and is_idle:
                    raise TransferInterruptedError(
                        f"the sender is alive, but sent nothing for {within_s:g} s"
                    ) from None

    def _take_control(self, message: dict[str, Any]) -> None:
        if message["kind"] == "abort":
            raise _told(message)
        if message["kind"] == "end":
            for each in entries_untrusted(message):
                self._take_end(each)
        elif message["kind"] == "hashes":
            self._take_digests(*digests_untrusted(message))
        elif message["kind"] == "holes":
            self._take_holes(*holes_untrusted(message))
        else:
            self._take_offers(offers_untrusted(message))

    def _take_offers(self, offers: Offers) -> None:
        """Note offered files. Raises TransferError for more than a sender may offer."""
        if len(self._files) + len(offers.offers) > MAX_FILES:
            raise TransferError(f"more than {MAX_FILES} files at a time were offered")
        if offers.offers and self._next_chunk == MAX_PIPE_CHUNKS:
            raise TransferError("a file after a pipe was offered")
        self._files_left = offers.files_left
        self._is_done_told = False
        for offer in offers.offers:
            file = self._files[self._next_file] = Incoming(offer, self._next_file, self._next_chunk)
            self._to_open.append(file)
            self._next_file += 1
            self._next_chunk = MAX_PIPE_CHUNKS if offer.is_pipe else self._next_chunk + offer.chunks
        if self._next_chunk > CONTROL_MESSAGE:
            raise TransferError("more chunks were offered than there are numbers")

    def _take_end(self, each: dict[str, Any]) -> None:
        file = self._files.get(each["file"])
        if file is None:
            if each["file"] >= self._next_file:
                raise TransferError(f"the end of file {each['file']}, which was not offered")
            return  # it has failed meanwhile
        if "reason" in each:
            self._fail(file, _told(each))
        elif isinstance(each.get("digest"), str) and each["digest"]:
            if file.offer.is_pipe:
                self._take_length(file, pipe_chunks_untrusted(each))
            self._take_hash(file, each["digest"])
        else:
            raise TransferError(f"the end of file {each['file']} without its hash")

    def _take_length(self, file: Incoming, chunks: int) -> None:
        """Note how many chunks a pipe had. Raises TransferError if more have come, or when it was known."""
        if self._sessions.arrived(file.offer) is None:
            file.missing -= MAX_PIPE_CHUNKS - chunks
            file.unannounced -= MAX_PIPE_CHUNKS - chunks
        if file.missing < 0 or file.unannounced < 0:
            raise TransferError(f"the end of file {file.number}, a pipe, before its beginning, or twice")

    def _take_hash(self, file: Incoming, digest: str) -> None:
        """Note the sender's hash; of a file that is there, compare it."""
        if not file.there:
            file.digest = digest
        elif file.there == digest:
            self._end(file, entry(file=file.number, digest=digest))
            self._release(file)
            self._watcher.on_identical(file.offer, digest)
        else:
            file.there = ""
            self._to_open.append(file)

    def _take_digests(self, first: int, digests: list[bytes]) -> None:
        file = self._file_of(first)
        if file is not None:
            file.unannounced -= len(digests)
            if file.unannounced < 0:
                raise TransferError(f"digests from chunk {first} on, which were not asked for")
            self._queue.add(Announcement(file, first - file.first, digests))

    def _take_holes(self, first: int, chunks: int) -> None:
        file = self._file_of(first)
        if file is not None:
            if file.offer.has_chunk_digests:
                file.unannounced -= chunks
            if file.unannounced < 0 or first - file.first + chunks > file.offer.chunks:
                raise TransferError(f"a hole from chunk {first} on, which was not asked for")
            self._queue.add(Hole(file, first - file.first, chunks))

    def _take_chunk(self, message: Message, number: int) -> None:
        try:
            file = self._file_of(number)
        except TransferError:
            message.release()
            raise
        if file is None:
            message.release()
        else:
            self._queue.add(Arrival(file, number - file.first, message))

    def _file_of(self, number: int) -> Incoming | None:
        """Return the file that a chunk is of; None if that has ended. Raises TransferError if it was not asked for."""
        for file in self._files.values():
            if file.first <= number < file.first + file.offer.chunks:
                if file.missing < 0:
                    raise TransferError(f"chunk {number}, which was not asked for")
                return file
        if number >= self._next_chunk:
            raise TransferError(f"chunk {number}, which was not offered")
        return None

    # -- work -----------------------------------------------------------------------------------------------------

    async def _store(self) -> None:
        while True:
            self._queue.check()
            await self._open_files()
            await self._finish_files()
            await self._close_files()
            if not self._has_work():
                await self._work.wait()

    def _has_work(self) -> bool:
        can_open = bool(self._to_open) and not self._is_blocked
        return can_open or bool(self._to_close) or any(map(_is_complete, self._files.values()))

    async def _open_files(self) -> None:
        """Open what was offered, as far as there is room for open files."""
        files: list[Incoming] = []
        while self._to_open and not self._is_blocked:
            file = self._to_open[0]
            if not file.has_ended and not await self._is_admitted(file, has_none=not files and not self._has_open()):
                self._is_blocked = True
                break
            self._to_open.popleft()
            if not file.has_ended:
                files.append(file)
        if not files:
            return
        for file, error in (await self._in_thread(lambda: self._open_all(files))).items():
            self._fail(file, error)
        for file in files:
            if not file.has_ended:
                self._on_opened(file)

    def _has_open(self) -> bool:
        return any(file.store is not None for file in self._files.values())

    async def _is_admitted(self, file: Incoming, *, has_none: bool) -> bool:
        """Whether a file may be opened now. If so, its transfer and its place are this session's."""
        if file.offer.refusal:
            self._fail(file, TransferError(file.offer.refusal))
            return True
        if file.offer.is_directory or file.store is not None:
            return True
        if not self._sessions.take_room(has_none=has_none):
            return False
        try:
            await self._sessions.claim(self, file.offer)
        except TransferError as error:
            self._sessions.give_room()
            self._fail(file, error)
            return True
        try:
            file.store = self._sessions.store(file.offer, stop=self._stop)
        except TransferError as error:
            self._sessions.yield_claim(file.offer)
            self._sessions.give_room()
            self._fail(file, error)
        return True

    def _open_all(self, files: list[Incoming]) -> dict[Incoming, TransferError]:
        """Open files and make directories; return those that failed. Runs in the thread."""
        failed: dict[Incoming, TransferError] = {}
        for file in files:
            try:
                if file.store is None:
                    file.unkept = self._sessions.place.make_directory(file.offer)
                elif self._sessions.arrived(file.offer) is not None:
                    continue
                elif file.offer.if_differs and not file.was_compared:
                    file.was_compared = True
                    file.there = self._sessions.place.hash_there(file.offer, stop=self._stop)
                    if not file.there:
                        file.store.open()
                else:
                    file.store.open()
            except TransferError as error:
                failed[file] = error
        return failed

    def _on_opened(self, file: Incoming) -> None:
        """Answer for a file that is open, a directory that was made, or a file that is there."""
        offer, store = file.offer, file.store
        if store is None:
            self._warn_once(file.unkept)
            self._end(file, entry(file=file.number, made=True))
        elif file.there:
            self._say(entry(file=file.number, has=file.there))
        else:
            arrived, in_order = self._sessions.arrived(offer), store.ordered is not None
            there = store.chunks.taken if arrived is None else arrived[1]
            beyond = store.chunks.beyond if arrived is None else []
            behind = sum(count for _, count in beyond)
            file.missing = offer.chunks - there - behind if arrived is None else 0
            if arrived is None and (offer.has_chunk_digests or in_order):
                file.unannounced += file.missing
            file.taken = there
            file.began_at = time.monotonic()
            resumed_bytes = min((there + behind) * offer.chunk_bytes, offer.size)
            self._watcher.on_resume(offer, store.size_bytes if in_order else resumed_bytes)
            self._say(entry(file=file.number, chunks=there, beyond=beyond or None, in_order=in_order or None))

    def _start(self, call: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._worker, call)

    def _on_stored(self, batch: list[Item], failures: Failures) -> None:
        for file, error in failures.items():
            if not (file.has_ended or self._sessions.is_stopped or self._stop.is_set()):
                self._fail(file, error)
        for item in batch:
            if not isinstance(item, Announcement):
                item.file.missing -= item.chunks if isinstance(item, Hole) else 1
            self._say_taken(item.file)
        self._work.notify()

    def _say_taken(self, file: Incoming) -> None:
        """Tell the sender of a file that is written in order how far that is."""
        ordered = None if file.store is None else file.store.ordered
        if ordered is not None and not file.has_ended and ordered.taken >= file.taken + _SAY_TAKEN_EVERY:
            file.taken = ordered.taken
            self._say(entry(file=file.number, taken=file.taken))

    async def _finish_files(self) -> None:
        files = [file for file in self._files.values() if file.is_complete]
        for file in files:
            if (known := self._sessions.arrived(file.offer)) is not None:
                self._confirm(file, known[0])
        files = [file for file in files if not file.has_ended]
        if not files:
            return
        for file, outcome in (await self._in_thread(lambda: finish_all(files))).items():
            if isinstance(outcome, TransferError):
                self._fail(file, outcome)
            else:
                self._on_finished(file, outcome)

    def _confirm(self, file: Incoming, known: str) -> None:
        """Answer again for a file whose answer was lost with its peer."""
        if file.digest == known:
            self._end(file, entry(file=file.number, digest=known))
            self._release(file)
        else:
            self._fail(file, TransferError(f"{file.offer.name}: another file of this transfer has arrived before"))

    def _on_finished(self, file: Incoming, digest: str) -> None:
        offer, ordered = file.offer, None if file.store is None else file.store.ordered
        self._sessions.note_arrival(offer, digest, chunks=offer.chunks if ordered is None else ordered.taken)
        self._end(file, entry(file=file.number, digest=digest))
        self._release(file)
        self._watcher.on_received(
            ReceivedFile(
                name=offer.name,
                path=self._sessions.place.path(offer),
                size=offer.size if ordered is None else ordered.size_bytes,
                file_hash=offer.file_hash,
                digest=digest,
                seconds=time.monotonic() - file.began_at,
                longest_stall_ms=self._stall.take_longest_s() * 1e3,
            )
        )

    async def _close_files(self) -> None:
        """Remove what there is of files that have failed, or keep it for their sender to go on."""
        if self._to_close:
            closing, self._to_close = self._to_close, []
            await self._discard(closing)

    async def _discard(self, closing: list[tuple[Incoming, bool]]) -> None:
        def discard() -> None:
            for file, is_kept in closing:
                if file.store is not None:
                    file.store.leave() if is_kept else file.store.abort()

        try:
            await self._in_thread(discard)
        finally:
            for file, is_kept in closing:
                if is_kept and file.store is not None and file.store.ordered is not None:
                    self._sessions.keep(file.offer, file.store)
                self._release(file)

    def _release(self, file: Incoming) -> None:
        """Give up the transfer and the place of a file that is closed."""
        if file.store is not None:
            if file.store.unremoved:
                self._watcher.warn(file.store.unremoved)
            self._warn_once(file.store.unkept)
            file.store = None
            self._sessions.yield_claim(file.offer)
            self._sessions.give_room()

    def _warn_once(self, unkept: dict[str, str]) -> None:
        """Say what is not kept of a file. What one file system refuses once it refuses for every file."""
        for what, line in unkept.items():
            if what not in self._unkept:
                self._watcher.warn(line)
        self._unkept |= unkept.keys()

    # -- ends -----------------------------------------------------------------------------------------------------

    def _fail(self, file: Incoming, error: TransferError) -> None:
        again = isinstance(error, TransferInterruptedError)
        is_kept = again and file.offer.retry_for_s > 0
        self._may_retry |= is_kept
        self._to_close.append((file, is_kept))
        self._end(file, entry(file=file.number, reason=str(error), again=again))
        self._watcher.on_failure(file.offer, error, is_kept=is_kept)

    def _end(self, file: Incoming, answer: dict[str, object]) -> None:
        del self._files[file.number]
        file.has_ended = True
        self._say(answer)

    def _say(self, answer: dict[str, object]) -> None:
        self._answers.append(answer)
        if len(self._answers) > _MAX_ANSWERS:
            raise TransferError("the sender takes no answers")
        self._work.notify()

    async def _answer(self) -> None:
        """Send what is to be answered; tell when that was the last answer for all that the sender has."""
        while True:
            answers, self._answers = self._answers, []
            for batch in batches(answers):
                status = await self._send_control("answer", files=batch)
                if status is not Status.OK and not self._peer.ended:
                    raise TransferInterruptedError(f"the sender is alive, but ANSWER ended with {status.name}")
            if self._answers:
                continue
            if not (self._is_done_told or self._files or self._files_left or self._may_retry):
                self._is_done_told = True
                self._watcher.on_done()
            await self._work.wait()

    async def _end_all(self, error: BaseException | None) -> None:
        """Close the files that have no last answer when the session ends; tell the sender, if it is alive."""
        for batch in batches(self._answers):
            await self._send_control("answer", files=batch)  # of files that are verified, for example
        if isinstance(error, TransferError):
            again = isinstance(error, TransferInterruptedError)
            await self._send_control("refuse", reason=str(error), again=again)
        elif isinstance(error, Exception) and not isinstance(error, PeerError):
            await self._refuse_for(error)
        if self._is_superseded:
            error = TransferInterruptedError("its sender has begun another attempt")
        has_parted = isinstance(error, PeerError) and error.status == 0
        may_resume = isinstance(error, PeerError | TransferInterruptedError | asyncio.CancelledError) and not has_parted
        files = list(self._files.values())
        self._files.clear()
        lost = [(file.offer, may_resume and file.offer.retry_for_s > 0) for file in files]
        closing = [(file, is_kept) for file, (_, is_kept) in zip(files, lost, strict=True)]
        await self._discard([*self._to_close, *closing])
        if isinstance(error, PeerError | TransferError) and (files or self._files_left):
            self._watcher.on_lost(error, lost)

    async def _refuse_for(self, error: Exception) -> None:
        """Tell the sender of an error that nobody has expected here, which another attempt would meet again.

        Whether the output can be written is a matter of this end, which stops: another process may receive the files.
        """
        reason = f"internal error of the receiver: {type(error).__name__}: {error}"
        await self._send_control("refuse", reason=reason, again=is_output_error(error))

    # -- both -----------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Try again to open files, as there may be room."""
        self._is_blocked = False
        self._work.notify()

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Run a blocking call in the session's thread. When cancelled, wait for it: it uses the messages' memory."""
        calling = self._start(call)
        self._is_busy = True
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            self._stop.set()
            await asyncio.wait([calling])
            raise
        finally:
            self._is_busy = False

    async def _send_control(self, kind: str, **fields: object) -> Status:
        return await send_control(self._peer, encode(kind, **fields))

    @property
    def _name(self) -> str:
        return host_port_text(*self._peer.address)


def _is_complete(file: Incoming) -> bool:
    return file.is_complete


class _InvalidOfferError(NotStartedError):
    """The first message was no valid offer."""


def _control_untrusted(message: Message) -> dict[str, Any]:
    with message:
        if message.immediate != CONTROL_MESSAGE:
            raise TransferError("data before an offer")
        return decode_untrusted(message.gather())


def _told(message: dict[str, Any]) -> TransferError:
    """Return the error for ABORT, or for an END with a reason."""
    error = refusal(message, default="without a reason")
    return type(error)(f"the sender gave up: {error}")
