"""What `srd recv` does with the peers that come: it serves any number of them concurrently, and says what happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from netns.base.addresses import host_port_text, reached_at
from netns.base.output import emit
from netns.base.printable import printable
from netns.base.standard_streams import is_output_error
from netns.base.tasks import Tasks
from srd.cli.progress import ProgressWatch
from srd.endpoint import Endpoint
from srd.errors import PeerError
from srd.file_transfer.leftovers import GRACE_S, Leftover
from srd.file_transfer.protocol import Offer, Offers
from srd.file_transfer.receiving import FileReceiver
from srd.file_transfer.sessions import NotStartedError, TransferSessions
from srd.file_transfer.watcher import ReceivedFile, Watcher
from srd.peer import Peer

NEXT_FILE_WITHIN_S = 30.0
"""Longest time that a sender which has announced more files may take to offer them: enough to connect anew on a bad
network."""

_log: Final = logging.getLogger(__name__)
_LEVELS: Final = {"": logging.INFO, "failed": logging.ERROR}
"""Of events; of all others that are logged: WARNING."""


@dataclass(frozen=True, slots=True)
class RecvListener:
    """Where a daemon receives from."""

    endpoint: Endpoint
    metrics: tuple[str, int] | None
    """Where it serves them."""
    figures: Callable[[], dict[str, int]] = dict
    """Returns counters for the event `received`."""


OpenListener = Callable[[], AbstractAsyncContextManager[RecvListener]]
"""Opens it, and closes it behind the block. Raises SrdError."""


class SessionEnd(Enum):
    """How a session ended."""

    DONE = auto()
    """Its sender has nothing more to send."""
    LOST = auto()
    """Its sender may come again."""
    FAILED = auto()
    """Files are lost, and their sender does not come again."""


class Daemon:
    """Serves any number of peers concurrently."""

    def __init__(self, sessions: TransferSessions, *, as_json: bool) -> None:
        self.sessions = sessions
        self.as_json = as_json
        self.figures: Callable[[], dict[str, int]] = dict
        self.transfers = 0  # sessions that are not done
        self.failures = 0
        self._resumable = 0  # files lost by their senders, which may go on with them
        self.outcomes: asyncio.Queue[SessionEnd | BaseException] = asyncio.Queue()  # of sessions, or a fatal error
        self._tasks = Tasks(self.outcomes.put_nowait)  # one per peer, and one per leftover partial file

    async def serve(self, source: OpenListener, *, once: bool) -> int:
        """Listen until cancelled, or with `once` until one sender is done; return the exit status then."""
        left = await self._leftovers()
        async with source() as opened:
            self.figures = opened.figures
            try:
                self._say_listening(opened)
                self._tasks.start(self._accept(opened.endpoint))
                for leftover in left:
                    self._tasks.start(self._expire(leftover, counts=False))
                return await self._outcome(once=once)
            except asyncio.CancelledError:
                if self.transfers:
                    self.warn(f"stopped with {self.transfers} transfer(s) unfinished")
                raise
            finally:
                self.sessions.stop()
                await self._tasks.end()
                await opened.endpoint.close()
                self.sessions.close()

    def _say_listening(self, opened: RecvListener) -> None:
        (host, port), code = opened.endpoint.address, opened.endpoint.identity.fingerprint
        if self.as_json:
            metrics = {} if opened.metrics is None else {"metrics": host_port_text(*opened.metrics)}
            emit("listening", address=host, port=port, fingerprint=code, **metrics)
            return
        self.say(f"listening on {host_port_text(host, port)}, {self.sessions.place.title}")
        self.say(f"send with: srd send FILE {host_port_text(reached_at(host), port)}{'#' * bool(code)}{code}")

    async def _leftovers(self) -> list[Leftover]:
        """Return the leftovers of earlier daemons. If the directory cannot be read, log that and return none."""
        try:
            return await asyncio.to_thread(self.sessions.place.leftovers)
        except OSError as error:
            what = f"{error.filename or 'the directory'}: cannot be read ({error.strerror})"
            self.warn(f"{what}, so what interrupted transfers left stays there")
            return []

    async def _outcome(self, *, once: bool) -> int:
        """Wait for sessions to end. Raises the error that ends the daemon.

        With `once`, return the exit status when a sender is done. A sender that was lost has NEXT_FILE_WITHIN_S to come
        again, or as long as what it left is kept.
        """
        within_s: float | None = None
        while True:
            try:
                async with asyncio.timeout(within_s):
                    outcome = await self.outcomes.get()
            except TimeoutError:
                if self.transfers or self._resumable:
                    continue
                self.warn(f"the sender has more files, but offered none within {NEXT_FILE_WITHIN_S:g} s")
                return 1
            if isinstance(outcome, BaseException):
                raise outcome
            if once and outcome is not SessionEnd.LOST:
                return 1 if self.failures or outcome is SessionEnd.FAILED else 0
            within_s = NEXT_FILE_WITHIN_S if once else None

    async def _accept(self, listener: Endpoint) -> None:
        while True:
            self._tasks.start(self._serve_peer(await listener.accept()))

    async def _serve_peer(self, peer: Peer) -> None:
        """Receive files from a peer until it closes. Errors are logged and affect no other peer."""
        session = SessionWatch(self, peer)
        _log.debug("%s: a peer is here", host_port_text(*peer.address))
        try:
            await FileReceiver(peer, sessions=self.sessions, watcher=session).receive()
        except NotStartedError as error:
            self.say(str(error), event="refused")
        except Exception as error:
            if is_output_error(error):
                raise
            what = f"internal error: {type(error).__name__}: {error}"
            self.say(f"{host_port_text(*peer.address)}: {what}", event="failed")
            self.outcomes.put_nowait(SessionEnd.FAILED)
        finally:
            session.end()
            await peer.close()
            _log.debug("%s: the peer has ended", host_port_text(*peer.address))

    def keep(self, offer: Offer) -> None:
        """Keep what there is of a file for its sender to go on, as long as that tries."""
        self._resumable += 1
        leftover = Leftover(offer.transfer, offer.name, offer.retry_for_s + GRACE_S)
        self._tasks.start(self._expire(leftover, counts=True))

    async def _expire(self, leftover: Leftover, *, counts: bool) -> None:
        """Remove the leftover of a lost sender that did not retry in time. `counts`: the file then counts as failed."""
        await asyncio.sleep(leftover.expires_in_s)
        self._resumable -= counts
        try:
            removed = await self.sessions.expire(leftover.transfer)
        except OSError as error:
            self.warn(f"{leftover.name}: what is left of it cannot be removed: {error.strerror}")
            return
        if removed is not None:
            what = "its sender did not come back; what there was of it is removed"
            self.say(f"{leftover.name}: {what}", event="failed", name=leftover.name)
            if counts:
                self.outcomes.put_nowait(SessionEnd.FAILED)

    def warn(self, text: str) -> None:
        """Say a problem that fails no file."""
        self.say(text, event="warning")

    def say(self, text: str, *, event: str = "", **fields: object) -> None:
        """Log one line; with `event` it is one, too, if events are printed."""
        if event and self.as_json:
            emit(event, **fields, reason=printable(text))
        _log.log(_LEVELS.get(event, logging.WARNING), "%s", text)


class SessionWatch(Watcher):
    """Says what happens in a session, and counts it."""

    def __init__(self, daemon: Daemon, peer: Peer) -> None:
        self._daemon = daemon
        self._peer = peer
        self._progress = ProgressWatch(peer, visible=not daemon.as_json)
        self._is_counted = False

    def on_begin(self, offers: Offers) -> None:
        """Show the progress."""
        self._count()
        count = len(offers.offers) + offers.files_left
        name = offers.offers[0].name if count == 1 and offers.offers else f"{count} files"
        self._progress.start(name, total_bytes=offers.total_bytes, on_progress=self._emit_progress)

    def on_resume(self, offer: Offer, resumed_bytes: int) -> None:  # noqa: ARG002 - the files' sum is shown
        """Count what was there."""
        self._progress.add(resumed_bytes)

    def on_received(self, received: ReceivedFile) -> None:
        """Say it."""
        if self._daemon.as_json:
            emit(
                "received",
                name=received.name,
                file=str(received.path),  # there is one: standard output is not for both
                bytes=received.size,
                seconds=round(received.seconds, 6),
                hash=received.file_hash,
                digest=received.digest,
                longest_stall_ms=round(received.longest_stall_ms, 3),
                **_packet_figures(self._peer),
                **self._daemon.figures(),
            )
        else:
            digest = f"{received.file_hash.upper()} {received.digest}"
            self._daemon.say(f"{received.name}: {received.size} bytes, {digest} verified")

    def on_identical(self, offer: Offer, digest: str) -> None:
        """Say it."""
        self._progress.add(offer.size)
        if self._daemon.as_json:
            emit("identical", name=offer.name, bytes=offer.size, hash=offer.file_hash, digest=digest)
        else:
            self._daemon.say(
                f"{offer.name}: {offer.size} bytes, is the same as here, {offer.file_hash.upper()} {digest}"
            )

    def on_failure(self, offer: Offer, error: Exception, *, is_kept: bool) -> None:
        """Report a file that failed, or wait for its sender to go on."""
        if is_kept:
            text = f"{error}; {offer.name} is kept for {offer.retry_for_s} s, for its sender to go on"
            self._daemon.say(text, event="interrupted", name=offer.name)
            self._daemon.keep(offer)
        else:
            self._daemon.failures += 1
            self._daemon.say(str(error), event="failed", name=offer.name)

    def on_lost(self, error: Exception, files: list[tuple[Offer, bool]]) -> None:
        """Report the files that were in flight, or wait for their sender to go on with them."""
        kept = [offer for offer, is_kept in files if is_kept]
        names = [offer.name for offer, _ in files]
        if kept:
            what = f"{kept[0].name} is" if len(kept) == 1 else f"{len(kept)} files are"
            whose = "its" if len(kept) == 1 else "their"
            text = f"{error}; {what} kept for {kept[0].retry_for_s} s, for {whose} sender to go on"
            self._daemon.say(text, event="interrupted", names=names)
        else:
            self._daemon.say(str(error), event="failed", names=names)
        for offer in kept:
            self._daemon.keep(offer)
        self._daemon.failures += len(files) - len(kept)
        has_parted = isinstance(error, PeerError) and error.status == 0
        self._daemon.outcomes.put_nowait(SessionEnd.LOST if kept or not (files or has_parted) else SessionEnd.FAILED)

    def on_done(self) -> None:
        """Its sender has nothing more."""
        self.end()
        self._daemon.outcomes.put_nowait(SessionEnd.DONE)

    def warn(self, line: str) -> None:
        """Say it."""
        self._daemon.warn(line)

    def _count(self) -> None:
        self._daemon.transfers += 1
        self._is_counted = True

    def end(self) -> None:
        """Stop to show the progress. Further calls have no effect."""
        self._progress.stop()
        self._daemon.transfers -= self._is_counted
        self._is_counted = False

    def _emit_progress(self, seconds: float, size_bytes: int) -> None:
        if self._daemon.as_json:
            with suppress(OSError):  # as the next event will, which is not emitted in a task of its own
                emit("progress", seconds=round(seconds, 4), bytes=size_bytes)


def _packet_figures(peer: Peer) -> dict[str, int]:
    """Return what the endpoint has counted."""
    stats = peer.stats()
    return {"packets": stats.rx_pkts, "duplicates": stats.rx_duplicates}
