"""`srd recv`: the receiving daemon."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from devmem import DevmemError, RegionError
from srd.cli.devmem import DeviceMemory
from srd.cli.options import HostPort, Interrupted, Size, busy_poll_option, emit, is_directory, run
from srd.cli.progress import ProgressWatch
from srd.cli.security import authorized_keys_option, security_config, security_options
from srd.cli.tracing import check_trace_file, trace_option, tracing
from srd.cli.transports import card_option, card_transport, check_without
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.file_transfer.leftovers import GRACE_S, Leftover, expire, leftovers
from srd.file_transfer.protocol import Offer, TransferInterruptedError
from srd.file_transfer.receiving import MAX_TRANSFERS, FileReceiver, Inbox, NotStartedError, Received
from srd.file_transfer.transport import Listener, Peer, Transport
from srd.io.addresses import host_port_text
from srd.peer import Peer as EndpointPeer
from srd.printable import printable

NEXT_FILE_WITHIN_S = 30.0
"""Longest time from a file to the next one that its sender has announced: enough to connect anew on a bad network."""


@click.command()
@click.option("--listen", type=HostPort(), help="Address to listen on; port 0 selects a free port.")
@card_option
@click.option("--output", type=click.Path(path_type=Path), help="Directory to store the files in; required.")
@click.option("--once", is_flag=True, help="Exit after all files of one srd send, or the first that fails.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@click.option(
    "--max-transfers",
    type=click.IntRange(1, 10_000),
    default=MAX_TRANSFERS,
    show_default=True,
    help="Maximum number of concurrent transfers; further senders are refused and retry.",
)
@click.option("--devmem", type=Size(), help="Receive all payload into one region of this size (256M, 1G).")
@security_options
@authorized_keys_option
@busy_poll_option
@trace_option
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines on stdout.")
def recv(
    *,
    listen: tuple[str, int] | None,
    card: str | None,
    output: Path | None,
    once: bool,
    overwrite: bool,
    max_transfers: int,
    as_json: bool,
    **endpoint: Any,
) -> int:
    """Receive files into a directory until stopped; --listen or --card says where.

    Prints the address and the fingerprint of its key: what srd send takes. All is encrypted.

    A file has a temporary name until it has been received completely, verified (BLAKE3) and synced; then it is renamed
    to its final name. Existing files are refused without --overwrite, names with a directory part always. The partial
    file of a lost sender is kept while the sender retries (srd send --retry-for), also across a restart of srd recv.

    With --card the files come through the queues of a card's device, which encrypts as the card's settings say. The
    address is then HOST:PORT/QPN/QKEY, of a queue pair: all that srd send --card needs. A restarted srd recv has
    another one.
    """
    own = EndpointOptions(**endpoint)
    if (listen is None) is (card is None):
        raise click.UsageError("give --listen HOST:PORT or --card DEVICE, one of them")
    if output is None:
        raise click.UsageError("give --output DIRECTORY, where the files go")
    _check_output(output)
    source = _by_endpoint(listen, own) if listen is not None else _by_card(card or "", own)
    daemon = Daemon(Inbox(output, overwrite=overwrite, max_transfers=max_transfers), as_json=as_json)
    return run(daemon.serve(source, once=once))


def _check_output(output: Path) -> None:
    """Raise click.UsageError or click.ClickException for what no files can be stored in."""
    if not is_directory(output):
        raise click.UsageError(f"--output {output}: is not a directory; make it first")
    try:
        tempfile.TemporaryFile(dir=output).close()  # the mode bits do not show it for root or read-only file systems
    except OSError as error:
        raise click.ClickException(
            f"--output {output}: cannot be written to ({error.strerror}); choose another directory"
        ) from error


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """Options of `srd recv` that are for an endpoint of this process."""

    devmem: int | None
    plain: bool
    psk_file: Path | None
    cert: Path | None
    ca: Path | None
    authorized_keys: Path | None
    busy_poll: bool
    trace_file: Path | None

    def given(self) -> dict[str, bool]:
        """Return which of them were given, by name."""
        named = {
            "--devmem": self.devmem,
            "--psk-file": self.psk_file,
            "--cert": self.cert,
            "--ca": self.ca,
            "--authorized-keys": self.authorized_keys,
            "--trace": self.trace_file,
        }
        flags = {"--plain": self.plain, "--busy-poll": self.busy_poll}
        return {**{name: value is not None for name, value in named.items()}, **flags}


@dataclass(frozen=True, slots=True)
class Opened:
    """Where a daemon receives from."""

    listener: Listener
    title: str
    """What it listens on."""
    hint: str
    """The command to send with."""
    fields: dict[str, object]
    """Of the event `listening`."""
    figures: Callable[[], dict[str, int]] = dict
    """Returns counters for the event `received`."""


Source = Callable[[], AbstractAsyncContextManager[Opened]]
"""Opens it, and closes it behind the block. Raises SrdError."""


def _by_endpoint(listen: tuple[str, int], own: EndpointOptions) -> Source:
    """Listen with an endpoint of this process. Raises click.UsageError for options that contradict each other."""
    check_trace_file(own.trace_file, inputs=[])
    security = security_config(
        plain=own.plain, psk_file=own.psk_file, cert=own.cert, ca=own.ca, authorized_keys=own.authorized_keys
    )
    memory = None if own.devmem is None else DeviceMemory(own.devmem)
    config = replace(memory.config if memory else EndpointConfig(), busy_poll=own.busy_poll, security=security)
    title = f"srd recv on {host_port_text(*listen)}"

    @asynccontextmanager
    async def opened() -> AsyncIterator[Opened]:
        with tracing(own.trace_file, title=title, vantage_point="server") as trace:
            endpoint = await Endpoint.listen(listen[0], port=listen[1], config=config, trace=trace)
            try:
                if memory:
                    memory.bind(endpoint)
                yield _described(endpoint, figures=memory.figures if memory else dict)
            finally:
                await endpoint.close()
                with suppress(RegionError):  # a cancelled transfer may still use the memory; the process exit frees it
                    if memory:
                        memory.close()

    return opened


def _described(endpoint: Endpoint, *, figures: Callable[[], dict[str, int]]) -> Opened:
    host, port = endpoint.address
    code = endpoint.identity.fingerprint
    reached_as = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    hint = f"srd send FILE {host_port_text(reached_as, port)}{'#' * bool(code)}{code}"
    fields: dict[str, object] = {"address": host, "port": port, "fingerprint": code}
    return Opened(endpoint, host_port_text(host, port), hint, fields, figures)


def _by_card(device: str, own: EndpointOptions) -> Source:
    """Listen with a queue pair of a card. Raises click.UsageError."""
    check_without(own.given())
    transport: type[Transport] = card_transport()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Opened]:
        card = await transport.open(device)
        try:
            listener = await card.listen()
            try:
                title = f"{device}, {listener.target}"
                hint = f"srd send --card DEVICE FILE {listener.target}"
                yield Opened(listener, title, hint, {"card": device, "target": listener.target})
            finally:
                await listener.close()
        finally:
            await card.close()

    return opened


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a file ended."""

    status: int
    """For the exit status: 0 or 1."""
    files_left: int = 0
    """How many files its sender has announced after it."""


class Daemon:
    """Serves any number of peers concurrently."""

    def __init__(self, inbox: Inbox, *, as_json: bool) -> None:
        self._inbox = inbox
        self._as_json = as_json
        self._figures: Callable[[], dict[str, int]] = dict
        self._transfers = 0  # running now
        self._resumable = 0  # lost by their senders, which may go on with them
        self._tasks: set[asyncio.Task[None]] = set()  # one per peer, and one per leftover partial file
        self._outcomes: asyncio.Queue[Outcome | BaseException] = asyncio.Queue()  # per file, or a fatal error

    async def serve(self, source: Source, *, once: bool) -> int:
        """Listen until cancelled, or with `once` until one sender is done; return the exit status."""
        left = await self._leftovers()
        async with source() as opened:
            self._figures = opened.figures
            try:
                self._say_listening(opened)
                self._spawn(self._accept(opened.listener))
                for leftover in left:
                    self._spawn(self._expire(leftover, counts=False))
                return await self._outcome(once=once)
            except asyncio.CancelledError:
                if self._transfers:
                    raise Interrupted(f"stopped with {self._transfers} transfer(s) unfinished") from None
                return 0
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await opened.listener.close()
                with suppress(RegionError):  # a cancelled transfer may still use the memory; the process exit frees it
                    self._inbox.close()

    def _say_listening(self, opened: Opened) -> None:
        if self._as_json:
            emit("listening", **opened.fields)
            return
        self._say(f"listening on {opened.title}, files go to {self._inbox.directory}")
        self._say(f"send with: {opened.hint}")

    async def _leftovers(self) -> list[Leftover]:
        """Return the leftovers of earlier daemons. If the directory cannot be read, log that and return none."""
        try:
            return await asyncio.to_thread(leftovers, self._inbox.directory)
        except OSError as error:
            directory = self._inbox.directory
            self._say(f"{directory}: cannot be read ({error.strerror}), so what interrupted transfers left there stays")
            return []

    async def _outcome(self, *, once: bool) -> int:
        """Wait for files to end. Raises the error that ends the daemon.

        With `once`, return the exit status when a file fails, or the last one of a sender has succeeded. A sender that
        announced another file has NEXT_FILE_WITHIN_S to offer it.
        """
        within_s: float | None = None
        while True:
            try:
                async with asyncio.timeout(within_s):
                    outcome = await self._outcomes.get()
            except TimeoutError:
                if self._transfers or self._resumable:
                    continue
                self._say(f"the sender announced another file, but offered none within {NEXT_FILE_WITHIN_S:g} s")
                return 1
            if isinstance(outcome, BaseException):
                raise outcome
            if once and (outcome.status or not outcome.files_left):
                return outcome.status
            within_s = NEXT_FILE_WITHIN_S if once else None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task in the background; an exception of it ends the daemon."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._outcomes.put_nowait(error)

        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def _accept(self, listener: Listener) -> None:
        while True:
            self._spawn(self._serve_peer(await listener.accept()))

    async def _serve_peer(self, peer: Peer) -> None:
        """Receive files from a peer until it closes. Errors are logged and affect no other peer."""
        try:
            await self._serve_files(peer)
        except BrokenPipeError:
            raise  # stdout has no reader, which concerns all peers
        except Exception as error:  # noqa: BLE001 - also internal errors and lack of resources
            self._say(f"{host_port_text(*peer.address)}: {type(error).__name__}: {error}")
        finally:
            await peer.close()

    async def _serve_files(self, peer: Peer) -> None:
        watch = ProgressWatch(peer, visible=not self._as_json)

        def on_start(offer: Offer, resumed_bytes: int) -> None:
            self._transfers += 1
            watch.start(offer, resumed_bytes=resumed_bytes, on_progress=self._emit_progress)

        def stop() -> None:
            if watch.stop():
                self._transfers -= 1

        receiver = FileReceiver(peer, inbox=self._inbox, on_start=on_start, warn=self._say)
        try:
            while (received := await receiver.receive()) is not None:
                stop()
                self._report(received, peer)
                self._outcomes.put_nowait(Outcome(0, files_left=received.files_left))
        except NotStartedError as error:
            self._say(str(error))
        except (SrdError, DevmemError) as error:
            stop()
            self._note_failure(error, receiver.offer)
        finally:
            stop()

    def _note_failure(self, error: SrdError | DevmemError, offer: Offer | None) -> None:
        """Report a file that failed, or wait for its sender to retry."""
        has_parted = isinstance(error, PeerError) and error.status == 0
        may_resume = isinstance(error, PeerError | TransferInterruptedError) and not has_parted
        if offer is None or not may_resume or not offer.retry_for_s:
            self._say(str(error))
            self._outcomes.put_nowait(Outcome(1))
            return
        self._say(f"{error}; {offer.name} is kept for {offer.retry_for_s} s, for its sender to go on")
        leftover = Leftover(offer.transfer, offer.name, offer.retry_for_s + GRACE_S)
        self._resumable += 1
        self._spawn(self._expire(leftover, counts=True))

    async def _expire(self, leftover: Leftover, *, counts: bool) -> None:
        """Remove the leftover of a lost sender that did not retry in time. `counts`: the file then counts as failed."""
        await asyncio.sleep(leftover.expires_in_s)
        self._resumable -= counts
        try:
            removed = await asyncio.to_thread(expire, self._inbox.directory, leftover.transfer)
        except OSError as error:
            self._say(f"{leftover.name}: what is left of it cannot be removed: {error.strerror}")
            return
        if removed is not None:
            self._say(f"{leftover.name}: its sender did not come back; what there was of it is removed")
            if counts:
                self._outcomes.put_nowait(Outcome(1))

    def _emit_progress(self, seconds: float, size_bytes: int) -> None:
        if self._as_json:
            emit("progress", seconds=round(seconds, 4), bytes=size_bytes)

    def _report(self, received: Received, peer: Peer) -> None:
        if self._as_json:
            emit(
                "received",
                name=received.name,
                path=str(received.path),
                bytes=received.size,
                seconds=round(received.seconds, 6),
                hash=received.file_hash,
                digest=received.digest,
                longest_stall_ms=round(received.longest_stall_ms, 3),
                **_packet_figures(peer),
                **self._figures(),
            )
        else:
            self._say(
                f"{received.name}: {received.size} bytes, {received.file_hash.upper()} {received.digest} verified"
            )

    def _say(self, text: str) -> None:
        """Print one line to stderr, without wrapping; names in it are printed neither as markup nor as escape codes."""
        click.echo(f"srd recv: {printable(text)}", err=True)  # opens no file, as there may be no descriptor left


def _packet_figures(peer: Peer) -> dict[str, int]:
    """Return what an endpoint of this process has counted."""
    if not isinstance(peer, EndpointPeer):
        return {}
    stats = peer.stats()
    return {"packets": stats.rx_pkts, "duplicates": stats.rx_duplicates}
