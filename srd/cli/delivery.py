"""The delivery of files in one or more attempts, each over a peer of its own, and what is said of it."""

from __future__ import annotations

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from netns.base.output import emit
from netns.base.printable import printable
from netns.base.token_bucket import TokenBucket
from srd.cli.progress import TransferProgress, rate_text
from srd.errors import PeerError, SrdError
from srd.file_transfer.errors import TransferError, TransferInterruptedError
from srd.file_transfer.listing import Listing
from srd.file_transfer.outgoing import OutgoingFile
from srd.file_transfer.protocol import CHUNK_BYTES
from srd.file_transfer.sending import FileEnd, FileSender, SentFile
from srd.peer import PathStats, Peer

RETRY_INTERVAL_S = 0.5
"""Time between two attempts; an attempt takes longer if the receiver does not answer."""


@dataclass(frozen=True, slots=True)
class SendOptions:
    """Options of `srd send`."""

    retry_for_s: int
    """Seconds without progress after which a transfer to a lost receiver fails; 0: at once."""

    devmem: bool
    """Whether files are mapped."""

    skip_identical: bool
    """Whether files that the receiver has are not sent again."""

    limit_bps: int | None
    """Most bits of payload a second."""

    file_hash: str
    """Of whole files: one of FILE_HASHES."""

    as_json: bool
    """Whether to print events instead of text."""

    paths: int
    """The endpoint's paths; those that a peer opens beyond them are standbys."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The receiver."""

    name: str
    """In messages."""

    connect: Callable[[], Awaitable[Peer]]
    """Opens a peer for one attempt. Raises SrdError."""


@dataclass(slots=True)
class DeliveredCounts:
    """What became of the files."""

    delivered: int = 0
    directories: int = 0
    was_there: int = 0
    failed: int = 0
    sent_bytes: int = 0
    """Of the files that were delivered and had not been there."""


class Delivery:
    """Sends files until each is delivered or has failed. What fails is said at once, and the others go on."""

    def __init__(self, listing: Listing, destination: Destination, *, options: SendOptions) -> None:
        self._listing = listing
        self._waiting: dict[OutgoingFile, None] = dict.fromkeys(listing.files)
        self._destination = destination
        self._options = options
        self._is_single = len(listing.files) + len(listing.failed) == 1
        self._single: SentFile | None = None
        self._failure = ""  # of the single one
        self._sender = secrets.token_hex(16)
        rate_bps = options.limit_bps
        self._bucket = None if rate_bps is None else _bucket(rate_bps)
        self._tally = DeliveredCounts()
        self._done_bytes = self._acked_bytes = 0  # of files that have ended, and of those in flight
        self._best = (0, 0)  # files that have ended and bytes acknowledged, the most in any attempt
        self._is_begun = False  # whether a peer has ever been open
        self._interrupted: TransferError | None = None  # the last reason to try a file again
        self._peer: Peer | None = None
        self._started = time.monotonic()
        has_pipe = any(file.is_pipe for file in listing.files)
        total_bytes = None if has_pipe else sum(file.size for file in listing.files)
        self._progress = TransferProgress(self._title(), total_bytes=total_bytes, visible=not options.as_json)

    async def run(self) -> int:
        """Send the files and report; return the exit status. Raises SrdError for what was not delivered."""
        try:
            for path, kind in self._listing.skipped:
                self._tell("skipped", path, f"is {kind}, which is not sent")
            for path, reason in self._listing.failed:
                self._fail(path, reason)
            if self._waiting:
                await self._attempts()
        finally:
            self._progress.close()
            for file in self._listing.files:
                file.close()
        return self._summary()

    async def _attempts(self) -> None:
        """Retry until every file has ended, or nothing new was acknowledged for `retry_for_s`."""
        first_loss, give_up_at, seen = "", math.inf, (0, 0)
        while self._waiting:
            self._interrupted = None
            try:
                await self._attempt()
            except SrdError as error:  # includes a route that has disappeared
                self._raise_if_final(error)
                self._interrupted = error if isinstance(error, TransferError) else TransferInterruptedError(str(error))
            if not self._waiting:
                return
            loss = self._interrupted or TransferInterruptedError("the session ended")
            now, retry_for_s = time.monotonic(), self._options.retry_for_s
            if not first_loss or self._best > seen:
                first_loss, give_up_at, seen = str(loss), now + retry_for_s, self._best
                if retry_for_s:
                    self._note(f"srd send: {self._label()}: {loss}; trying again for {retry_for_s} s")
            if now >= give_up_at:
                tried = f"; tried again for {retry_for_s} s" if retry_for_s else ""
                what = "the file was" if len(self._waiting) == 1 else "these files were"
                raise SrdError(f"{self._label()}: {first_loss}{tried}; {what} not delivered") from loss
            await asyncio.sleep(min(RETRY_INTERVAL_S, give_up_at - now))

    def _raise_if_final(self, error: SrdError) -> None:
        """Raise the error if another attempt would not help."""
        if isinstance(error, TransferError) and not isinstance(error, TransferInterruptedError):
            raise SrdError(f"{self._label()}: not delivered: {error}") from error
        if not self._is_begun:
            if isinstance(error, PeerError):
                is_silent = any(f": {reason}" in str(error) for reason in ("no answer", "nothing listens"))
                hint = "; is srd recv running there?" if is_silent else ""
                raise SrdError(f"{error}{hint}") from error
            raise error

    def _label(self) -> str:
        """Return what is not delivered yet."""
        if len(self._waiting) == 1:
            return str(next(iter(self._waiting)).path)
        return f"{len(self._waiting)} files"

    def _title(self) -> str:
        return self._listing.files[0].path.name if self._is_single and self._listing.files else self._label()

    async def _attempt(self) -> None:
        is_first, options = not self._is_begun, self._options
        peer = self._peer = await self._destination.connect()
        self._is_begun = True
        for file in self._waiting:
            file.if_differs = options.skip_identical or not is_first
        sender = FileSender(
            peer,
            on_progress=self._on_progress,
            mapped=options.devmem,
            retry_for_s=options.retry_for_s,
            bucket=self._bucket,
            sender=self._sender,
            file_hash=options.file_hash,
        )
        self._acked_bytes = 0
        try:
            await sender.send_all(list(self._waiting), on_end=self._on_end)
        finally:
            await peer.close()
            sender.close()

    def _on_progress(self, _file: OutgoingFile, size_bytes: int) -> None:
        self._acked_bytes += size_bytes
        self._note_progress()

    def _note_progress(self) -> None:
        done_bytes = self._done_bytes + self._acked_bytes
        self._best = max(self._best, (len(self._listing.files) - len(self._waiting), done_bytes))
        self._progress.show(done_bytes)

    def _on_end(self, file: OutgoingFile, outcome: FileEnd) -> None:
        self._acked_bytes -= file.acked_bytes
        file.acked_bytes = 0
        if isinstance(outcome, TransferInterruptedError):
            self._interrupted = outcome
            return
        del self._waiting[file]
        self._done_bytes += file.size
        if isinstance(outcome, TransferError):
            self._fail(file.path, str(outcome))
        else:
            self._on_sent(file, outcome)
        self._note_progress()

    def _on_sent(self, file: OutgoingFile, sent: SentFile) -> None:
        tally = self._tally
        tally.was_there += sent.was_there
        tally.delivered += not file.is_directory
        tally.directories += file.is_directory
        tally.sent_bytes += 0 if sent.was_there else sent.size
        if self._is_single and not file.is_directory:
            self._single = sent
        elif self._options.as_json and not file.is_directory:
            emit("identical" if sent.was_there else "sent", **_fields(sent))

    # -- what is said ---------------------------------------------------------------------------------------------

    def _fail(self, path: Path, reason: str) -> None:
        """Count a file that cannot be delivered. That of a single one is the error of the command."""
        self._tally.failed += 1
        said = f"not delivered: {reason.removeprefix(f'{path}: ')}"
        if self._is_single:
            self._failure = f"{path}: {said}"
        else:
            self._tell("failed", path, said)

    def _tell(self, event: str, path: Path, said: str) -> None:
        if self._options.as_json:
            emit(event, file=str(path), reason=printable(said))
        self._note(f"srd send: {path}: {said}")

    def _note(self, line: str) -> None:
        self._progress.note(line)

    def _summary(self) -> int:
        """Say what was delivered. Raises SrdError with what was not."""
        if self._failure:
            raise SrdError(self._failure)
        seconds, tally, peer = time.monotonic() - self._started, self._tally, self._peer
        goodput_bps = tally.sent_bytes * 8 / seconds
        fields, notes = _endpoint_figures(peer, primary=self._options.paths) if peer is not None else ({}, "")
        figures = {"seconds": round(seconds, 6), "goodput_bps": round(goodput_bps)}
        if self._options.as_json:
            if self._single is not None:
                emit("identical" if self._single.was_there else "sent", **_fields(self._single), **figures, **fields)
            counts = {"delivered": tally.delivered, "identical": tally.was_there, "failed": tally.failed}
            emit("summary", **counts, bytes=tally.sent_bytes, **figures, **fields)
        elif tally.delivered:
            click.echo(
                _summary_text(
                    tally,
                    self._single,
                    f"{seconds:.3f} s, {rate_text(goodput_bps)}, {notes}",
                    file_hash=self._options.file_hash,
                )
            )
        elif tally.directories:
            click.echo(_directories_text(self._listing.files[-1].name, count=tally.directories))
        if tally.failed:
            verb = "was" if tally.failed == 1 else "were"
            raise SrdError(f"{tally.failed} of {tally.delivered + tally.failed} files {verb} not delivered")
        return 0


def _fields(sent: SentFile) -> dict[str, Any]:
    return {"name": sent.name, "bytes": sent.size, "hash": sent.file_hash, "digest": sent.digest, "verified": True}


def _summary_text(tally: DeliveredCounts, single: SentFile | None, figures: str, *, file_hash: str) -> str:
    if single is not None:
        took = "the receiver has the same, " if single.was_there else f"{single.size} bytes in {figures}"
        return f"{printable(single.name)}: {took}{single.file_hash.upper()} {single.digest} verified"
    there = f"{tally.was_there} of them were there, " if tally.was_there else ""
    return f"{tally.delivered} files, {there}{tally.sent_bytes} bytes in {figures}{file_hash.upper()} verified"


def _directories_text(name: str, *, count: int) -> str:
    """Return what is said where no file was delivered. `name`: of the outermost directory, which is made last."""
    what = "it is empty" if count == 1 else f"{count} directories, without files"
    return f"{printable(name)}: made at the receiver; {what}"


def _endpoint_figures(peer: Peer, *, primary: int) -> tuple[dict[str, Any], str]:
    """Return what the endpoint has counted, for events and as text; `primary`: its number of paths."""
    stats = peer.stats()
    packets, retransmitted = stats.tx_pkts, stats.retrans_pkts
    fraction = retransmitted / packets if packets else 0.0
    paths = peer.paths
    fields = {"retransmitted_fraction": round(fraction, 6), "paths": _path_figures(paths, primary=primary)}
    return fields, f"{100 * fraction:.1f} % retransmitted, {paths_text(paths, primary=primary)}, "


def paths_text(paths: Sequence[PathStats], *, primary: int) -> str:
    """Return how many paths carried packets: of the first `primary` ones, and of the standbys for those that failed."""
    used = [path.path for path in paths if path.counters.packets]
    standbys = sum(number >= primary for number in used)
    text = f"{len(used) - standbys} paths"
    return f"{text} and {standbys} standby{'s' if standbys > 1 else ''}" if standbys else text


def _path_figures(paths: Sequence[PathStats], *, primary: int) -> list[dict[str, Any]]:
    return [
        {
            "path": path.path,
            "standby": path.path >= primary,
            "packets": path.counters.packets,
            "retransmitted": path.counters.retransmitted,
            "lost": path.counters.lost,
            "timeouts": path.counters.timeouts,
            "marked": path.counters.ecn_ce,
            "rtt_us": None if path.smoothed_rtt_s is None else round(path.smoothed_rtt_s * 1e6),
            "state": path.state.name.lower(),
        }
        for path in paths
    ]


def _bucket(rate_bps: int) -> TokenBucket:
    """Return the limit of payload, a chunk deep.

    It is empty at first: a file of two chunks takes as long as its bytes at that rate, and not half of it.
    """
    return TokenBucket(rate_bps / 8, depth_s=8 * CHUNK_BYTES / rate_bps, empty_at=time.monotonic())
