"""`srd send`: sends files, and exits when the receiver has verified every one."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from srd.cli.options import busy_poll_option, emit, is_directory, is_file, run
from srd.cli.progress import TransferProgress, rate_text
from srd.cli.security import Target, known_hosts_option, security_config, security_options
from srd.cli.tracing import check_trace_file, trace_option, tracing
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.file_transfer.protocol import MAX_RETRY_S, TransferError, TransferInterruptedError
from srd.file_transfer.sending import FileSender, Sent, SourceFile
from srd.io.addresses import host_port_text
from srd.peer import Peer
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


@click.command()
@click.argument("arguments", metavar="FILE... HOST:PORT[#FINGERPRINT]", nargs=-1, required=True)
@click.option(
    "--paths",
    type=click.IntRange(1, MAX_PATHS),
    default=ProtocolConfig().paths,
    show_default=True,
    help="Number of source ports to spray packets over.",
)
@click.option(
    "--retry-for",
    "retry_for_s",
    type=click.IntRange(0, MAX_RETRY_S),
    metavar="SECONDS",
    default=RETRY_FOR_S,
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
    paths: int,
    retry_for_s: int,
    devmem: bool,
    plain: bool,
    psk_file: Path | None,
    cert: Path | None,
    ca: Path | None,
    known_hosts: Path | None,
    busy_poll: bool,
    trace_file: Path | None,
    as_json: bool,
) -> int:
    """Send files to an `srd recv` at HOST:PORT.

    All is encrypted. The receiver must have the key with the FINGERPRINT, which srd recv prints. Without it a receiver
    is trusted the first time, and must have the same key from then on, as with SSH.

    The exit status is 0 only if the receiver has verified every byte of every file. If the receiver is lost during a
    file, the transfer is retried (--retry-for) and resumed: what the receiver already has is not sent again.
    """
    if len(arguments) < 2:
        raise click.UsageError("give at least one FILE, and HOST:PORT last")
    if devmem and not plain:
        raise click.UsageError(
            "--devmem: sends the pages of a file as they are, which cannot be encrypted; add --plain"
        )
    *names, last = arguments
    target = Target().convert(last, None, None)
    files = [Path(name) for name in names]
    for file in files:
        if is_directory(file):
            raise click.UsageError(f"{file}: is a directory; pack it first, with tar for example")
        if not is_file(file):
            raise click.UsageError(f"{file}: no such file; check the name")
    check_trace_file(trace_file, inputs=files)
    security = security_config(plain=plain, psk_file=psk_file, cert=cert, ca=ca, known_hosts=known_hosts)
    if target[2] is not None and not isinstance(security, Keys):
        raise click.UsageError(
            f"{last}: a fingerprint is of a public key; leave out --plain, --psk-file and --cert, or it"
        )
    config = EndpointConfig(protocol=ProtocolConfig(paths=paths), busy_poll=busy_poll, security=security)
    options = SendOptions(retry_for_s=retry_for_s, devmem=devmem, as_json=as_json)
    return run(_send(files, target, config=config, options=options, trace_file=trace_file))


async def _send(
    files: list[Path],
    target: tuple[str, int, str | None],
    *,
    config: EndpointConfig,
    options: SendOptions,
    trace_file: Path | None,
) -> int:
    host, port, _ = target
    with tracing(trace_file, title=f"srd send to {host_port_text(host, port)}", vantage_point="client") as trace:
        async with await Endpoint.open(towards=host, config=config, trace=trace) as endpoint:
            for file in files:
                with SourceFile(file) as source:
                    await Delivery(endpoint, source, target, options=options).run()
    return 0


class Delivery:
    """The delivery of one file in one or more attempts. Each has a new peer, so that its counters are the file's."""

    def __init__(
        self, endpoint: Endpoint, source: SourceFile, target: tuple[str, int, str | None], *, options: SendOptions
    ) -> None:
        self._endpoint = endpoint
        self._source = source
        self._host, self._port, self._fingerprint = target
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
        _report(sent, peer, seconds=time.monotonic() - started, as_json=self._options.as_json)

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
                raise SrdError(f"{host_port_text(self._host, self._port)}: {error}{hint}") from error
            raise error

    async def _attempt(self, progress: TransferProgress) -> tuple[Sent, Peer]:
        peer = await self._endpoint.connect(self._host, port=self._port, fingerprint=self._fingerprint)
        if peer.is_first_contact:
            click.echo(
                f"srd send: {host_port_text(self._host, self._port)} is new: its key has the fingerprint "
                f"{peer.identity.fingerprint}, and is trusted from now on",
                err=True,
            )
        self._is_begun = True
        acked_bytes = 0

        def on_progress(size_bytes: int) -> None:
            nonlocal acked_bytes
            acked_bytes += size_bytes
            self._best_bytes = max(self._best_bytes, acked_bytes)
            progress.show(acked_bytes)

        sender = FileSender(
            peer, on_progress=on_progress, mapped=self._options.devmem, retry_for_s=self._options.retry_for_s
        )
        try:
            return await sender.attempt(self._source), peer
        finally:
            await peer.close()
            sender.close()


def _report(sent: Sent, peer: Peer, *, seconds: float, as_json: bool) -> None:
    packets, retransmitted = peer.packets_sent, peer.packets_retransmitted
    fraction = retransmitted / packets if packets else 0.0
    goodput_bps = sent.size * 8 / seconds
    if as_json:
        emit(
            "sent",
            name=sent.name,
            bytes=sent.size,
            seconds=round(seconds, 6),
            goodput_bps=round(goodput_bps),
            retransmitted_fraction=round(fraction, 6),
            sha256=sent.sha256,
            sha256_ok=True,
            paths=_path_figures(peer),
        )
        return
    used = sum(1 for path in peer.paths if path.counters.packets)
    click.echo(
        f"{printable(sent.name)}: {sent.size} bytes in {seconds:.3f} s, {rate_text(goodput_bps)}, "
        f"{100 * fraction:.1f} % retransmitted, {used} paths, SHA-256 verified"
    )


def _path_figures(peer: Peer) -> list[dict[str, Any]]:
    return [
        {
            "path": path.path,
            "packets": path.counters.packets,
            "retransmitted": path.counters.retransmitted,
            "lost": path.counters.lost,
            "timeouts": path.counters.timeouts,
            "marked": path.counters.ecn_ce,
            "rtt_us": None if path.smoothed_rtt_s is None else round(path.smoothed_rtt_s * 1e6),
            "state": path.state.name.lower(),
        }
        for path in peer.paths
    ]
