"""`srd send`: sends files, and exits when the receiver has verified every one."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from srd.cli.options import Duration, busy_poll_option, emit, is_directory, is_file, run
from srd.cli.progress import TransferProgress, rate_text
from srd.cli.security import Target, known_hosts_option, security_config, security_options
from srd.cli.tracing import check_trace_file, trace_option, tracing
from srd.cli.transports import card_option, card_transport, check_target, check_without
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.file_transfer.protocol import MAX_RETRY_S, TransferError, TransferInterruptedError
from srd.file_transfer.sending import FileSender, Sent
from srd.file_transfer.source_file import SourceFile
from srd.file_transfer.transport import Peer, Transport
from srd.io.addresses import host_port_text
from srd.peer import PathStats
from srd.peer import Peer as EndpointPeer
from srd.printable import printable
from srd.proto.config import MAX_PATHS, ProtocolConfig
from srd.secure.config import Keys

RETRY_FOR_S = 60
"""Default of --retry-for: long enough for a restart of the receiver, a migration of its host, or a flapping link."""
RETRY_INTERVAL_S = 0.5
"""Time between two attempts; an attempt takes longer if the receiver does not answer."""


@dataclass(frozen=True, slots=True)
class SendOptions:
    """Options of `srd send`."""

    retry_for_s: int
    """Seconds without progress after which a transfer to a lost receiver fails; 0: at once."""

    devmem: bool
    """Whether files are mapped."""

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


@click.command()
@click.argument("arguments", metavar="FILE... HOST:PORT[#FINGERPRINT]", nargs=-1, required=True)
@card_option
@click.option(
    "--paths",
    type=click.IntRange(1, MAX_PATHS),
    help=f"Number of source ports to spray packets over.  [default: {ProtocolConfig().paths}]",
)
@click.option(
    "--retry-for",
    "retry_for_s",
    type=Duration(most_s=MAX_RETRY_S),
    default=f"{RETRY_FOR_S}s",
    show_default=True,
    help="Retry for this long when the receiver is lost during a file; 0: fail at once.",
)
@click.option("--devmem", is_flag=True, help="Map files, and send them directly from the page cache; needs --plain.")
@security_options
@known_hosts_option
@busy_poll_option
@trace_option
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines on stdout.")
def send(
    *,
    arguments: tuple[str, ...],
    card: str | None,
    retry_for_s: float,
    devmem: bool,
    as_json: bool,
    **endpoint: Any,
) -> int:
    """Send files to an `srd recv` at HOST:PORT.

    All is encrypted. The receiver must have the key with the FINGERPRINT, which srd recv prints. Without it a receiver
    is trusted the first time, and must have the same key from then on, as with SSH.

    The exit status is 0 only if the receiver has verified every byte of every file. If the receiver is lost during a
    file, the transfer is retried (--retry-for) and resumed: what the receiver already has is not sent again.

    With --card the files go through the queues of a card's device. The last argument is then what srd recv --card
    prints, HOST:PORT/QPN/QKEY: address and UDP port of the other card, and number and key of a queue pair there.
    """
    if len(arguments) < 2:
        raise click.UsageError("give at least one FILE, and HOST:PORT last")
    own = EndpointOptions(**endpoint)
    paths = own.paths or ProtocolConfig().paths
    options = SendOptions(retry_for_s=math.ceil(retry_for_s), devmem=devmem, as_json=as_json, paths=paths)
    *names, target = arguments
    if card is None:
        address = Target().convert(target, None, None)
        files = _files(names)
        check_trace_file(own.trace_file, inputs=files)
        config = own.config(target, options)
        return run(_send(files, address, config=config, options=options, trace_file=own.trace_file))
    check_without({"--devmem": devmem, **own.given()})
    transport = card_transport()
    check_target(transport, target)
    return run(_send_by(transport, card, _files(names), target, options=options))


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """Options of `srd send` that are for an endpoint of this process."""

    paths: int | None
    plain: bool
    psk_file: Path | None
    cert: Path | None
    ca: Path | None
    known_hosts: Path | None
    busy_poll: bool
    trace_file: Path | None

    def given(self) -> dict[str, bool]:
        """Return which of them were given, by name."""
        named = {
            "--paths": self.paths,
            "--psk-file": self.psk_file,
            "--cert": self.cert,
            "--ca": self.ca,
            "--known-hosts": self.known_hosts,
            "--trace": self.trace_file,
        }
        flags = {"--plain": self.plain, "--busy-poll": self.busy_poll}
        return {**{name: value is not None for name, value in named.items()}, **flags}

    def config(self, target: str, options: SendOptions) -> EndpointConfig:
        """Return the endpoint's settings. Raises click.UsageError for options that contradict each other."""
        if options.devmem and not self.plain:
            raise click.UsageError(
                "--devmem: sends the pages of a file as they are, which cannot be encrypted; add --plain"
            )
        security = security_config(
            plain=self.plain, psk_file=self.psk_file, cert=self.cert, ca=self.ca, known_hosts=self.known_hosts
        )
        if "#" in target and not isinstance(security, Keys):
            raise click.UsageError(
                f"{target}: a fingerprint is of a public key; leave out --plain, --psk-file and --cert, or it"
            )
        protocol = ProtocolConfig(paths=options.paths)
        return EndpointConfig(protocol=protocol, busy_poll=self.busy_poll, security=security)


def _files(names: list[str]) -> list[Path]:
    """Return the files to send. Raises click.UsageError for one that is not there."""
    files = [Path(name) for name in names]
    for file in files:
        if is_directory(file):
            raise click.UsageError(f"{file}: is a directory; pack it first, with tar for example")
        if not is_file(file):
            raise click.UsageError(f"{file}: no such file; check the name")
    return files


async def _send(
    files: list[Path],
    target: tuple[str, int, str | None],
    *,
    config: EndpointConfig,
    options: SendOptions,
    trace_file: Path | None,
) -> int:
    host, port, fingerprint = target
    name = host_port_text(host, port)
    with tracing(trace_file, title=f"srd send to {name}", vantage_point="client") as trace:
        async with await Endpoint.open(towards=host, config=config, trace=trace) as endpoint:

            async def connect() -> Peer:
                peer = await endpoint.connect(host, port=port, fingerprint=fingerprint)
                if peer.is_first_contact:
                    click.echo(
                        f"srd send: {name} is new: its key has the fingerprint {peer.identity.fingerprint}, and is "
                        "trusted from now on",
                        err=True,
                    )
                return peer

            await _deliver(files, Destination(name, connect), options=options)
    return 0


async def _send_by(
    transport: type[Transport], device: str, files: list[Path], target: str, *, options: SendOptions
) -> int:
    opened = await transport.open(device)
    try:
        await _deliver(files, Destination(target, lambda: opened.connect(target)), options=options)
    finally:
        await opened.close()
    return 0


async def _deliver(files: list[Path], destination: Destination, *, options: SendOptions) -> None:
    for files_left, file in zip(reversed(range(len(files))), files, strict=True):
        with SourceFile(file) as source:
            await Delivery(source, destination, options=options, files_left=files_left).run()


class Delivery:
    """The delivery of one file in one or more attempts. Each has a new peer, so that its counters are the file's."""

    def __init__(self, source: SourceFile, destination: Destination, *, options: SendOptions, files_left: int) -> None:
        self._source = source
        self._files_left = files_left
        self._destination = destination
        self._options = options
        self._best_bytes = 0  # the most bytes acknowledged in any attempt
        self._is_begun = False  # whether a peer has ever been open

    async def run(self) -> None:
        """Send the file and report it. Raises SrdError with one line that names the file."""
        started = time.monotonic()
        progress = TransferProgress(
            self._source.path.name, total_bytes=self._source.size, visible=not self._options.as_json
        )
        try:
            sent, peer = await self._attempts(progress)
        except TransferError as error:
            raise SrdError(f"{self._source.path}: not delivered: {error}") from error
        finally:
            progress.close()
        _report(sent, peer, seconds=time.monotonic() - started, options=self._options)

    async def _attempts(self, progress: TransferProgress) -> tuple[Sent, Peer]:
        """Retry until the file is delivered, or nothing new was acknowledged for `retry_for_s`."""
        first_loss, give_up_at, seen_bytes = "", math.inf, 0
        while True:
            try:
                return await self._attempt(progress)
            except SrdError as error:  # includes a route that has disappeared
                self._raise_if_final(error)
                now, retry_for_s = time.monotonic(), self._options.retry_for_s
                if not first_loss or self._best_bytes > seen_bytes:
                    first_loss, give_up_at, seen_bytes = str(error), now + retry_for_s, self._best_bytes
                    if retry_for_s:
                        progress.note(f"srd send: {self._source.path}: {error}; trying again for {retry_for_s} s")
                if now >= give_up_at:
                    tried = f"; tried again for {retry_for_s} s" if retry_for_s else ""
                    raise SrdError(f"{self._source.path}: {first_loss}{tried}; the file was not delivered") from error
                await asyncio.sleep(min(RETRY_INTERVAL_S, give_up_at - now))

    def _raise_if_final(self, error: SrdError) -> None:
        """Raise the error if another attempt would not help."""
        if isinstance(error, TransferError) and not isinstance(error, TransferInterruptedError):
            raise error
        if not self._is_begun:
            if isinstance(error, PeerError):
                is_silent = str(error).startswith(("no answer", "nothing listens"))
                hint = "; is srd recv running there?" if is_silent else ""
                raise SrdError(f"{self._destination.name}: {error}{hint}") from error
            raise error

    async def _attempt(self, progress: TransferProgress) -> tuple[Sent, Peer]:
        peer = await self._destination.connect()
        self._is_begun = True
        acked_bytes = 0

        def on_progress(size_bytes: int) -> None:
            nonlocal acked_bytes
            acked_bytes += size_bytes
            self._best_bytes = max(self._best_bytes, acked_bytes)
            progress.show(acked_bytes)

        sender = FileSender(
            peer,
            on_progress=on_progress,
            mapped=self._options.devmem,
            retry_for_s=self._options.retry_for_s,
            files_left=self._files_left,
        )
        try:
            return await sender.attempt(self._source), peer
        finally:
            await peer.close()
            sender.close()


def _report(sent: Sent, peer: Peer, *, seconds: float, options: SendOptions) -> None:
    goodput_bps = sent.size * 8 / seconds
    fields, notes = _endpoint_figures(peer, primary=options.paths) if isinstance(peer, EndpointPeer) else ({}, "")
    if options.as_json:
        emit(
            "sent",
            name=sent.name,
            bytes=sent.size,
            seconds=round(seconds, 6),
            goodput_bps=round(goodput_bps),
            sha256=sent.sha256,
            sha256_ok=True,
            **fields,
        )
        return
    click.echo(
        f"{printable(sent.name)}: {sent.size} bytes in {seconds:.3f} s, {rate_text(goodput_bps)}, "
        f"{notes}SHA-256 verified"
    )


def _endpoint_figures(peer: EndpointPeer, *, primary: int) -> tuple[dict[str, Any], str]:
    """Return what an endpoint of this process has counted, for events and as text; `primary`: its number of paths."""
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
