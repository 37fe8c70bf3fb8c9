"""`srd send`: sends files and ends when the receiver has verified every one."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import click

from srd.cli.options import HostPort, busy_poll_option, emit, is_directory, is_file, run
from srd.cli.progress import TransferProgress, rate_text
from srd.cli.tracing import check_trace_file, trace_option, tracing
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.io.addresses import host_port_text
from srd.peer import Peer
from srd.proto.config import MAX_PATHS, ProtocolConfig
from srd.transfer.sending import FileSender, Sent
from srd.transfer.words import TransferError


@click.command()
@click.argument("arguments", metavar="FILE... HOST:PORT", nargs=-1, required=True)
@click.option(
    "--paths",
    type=click.IntRange(1, MAX_PATHS),
    default=ProtocolConfig().paths,
    show_default=True,
    help="Source ports to spray over.",
)
@click.option("--devmem", is_flag=True, help="Map files and send them from where the page cache has them.")
@busy_poll_option
@trace_option
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines on stdout.")
def send(
    *,
    arguments: tuple[str, ...],
    paths: int,
    devmem: bool,
    busy_poll: bool,
    trace_file: Path | None,
    as_json: bool,
) -> int:
    """Send files to an `srd recv` at HOST:PORT.

    The exit status is 0 only when the receiver has verified every byte of every file.
    """
    if len(arguments) < 2:
        raise click.UsageError("give at least one FILE, and HOST:PORT last")
    *names, target = arguments
    host, port = HostPort().convert(target, None, None)
    files = [Path(name) for name in names]
    for file in files:
        if is_directory(file):
            raise click.UsageError(f"{file}: is a directory; pack it first, with tar for example")
        if not is_file(file):
            raise click.UsageError(f"{file}: no such file; check the name")
    check_trace_file(trace_file, inputs=files)
    config = EndpointConfig(protocol=ProtocolConfig(paths=paths), busy_poll=busy_poll)
    return run(_send(files, host, port=port, config=config, devmem=devmem, trace_file=trace_file, as_json=as_json))


async def _send(
    files: list[Path],
    host: str,
    *,
    port: int,
    config: EndpointConfig,
    devmem: bool,
    trace_file: Path | None,
    as_json: bool,
) -> int:
    with tracing(trace_file, title=f"srd send to {host_port_text(host, port)}", vantage_point="client") as trace:
        async with await Endpoint.open(towards=host, config=config, trace=trace) as endpoint:
            for file in files:
                total_bytes = (await asyncio.to_thread(file.stat)).st_size
                await _send_one(
                    endpoint, file, host, port=port, total_bytes=total_bytes, devmem=devmem, as_json=as_json
                )
    return 0


async def _send_one(
    endpoint: Endpoint, file: Path, host: str, *, port: int, total_bytes: int, devmem: bool, as_json: bool
) -> None:
    """One peer a file, so that its figures are the file's own."""
    started = time.monotonic()
    try:
        peer = await endpoint.connect(host, port=port)
    except PeerError as error:
        raise SrdError(f"{host_port_text(host, port)}: {error}; is srd recv running there?") from error
    progress = TransferProgress(file.name, total_bytes=total_bytes, visible=not as_json)
    sender = FileSender(peer, on_progress=progress.add, mapped=devmem)
    try:
        sent = await sender.send(file)
        seconds = time.monotonic() - started
    except PeerError as error:
        raise SrdError(f"{file}: {error}; the file was not delivered") from error
    except TransferError as error:
        raise SrdError(f"{file}: not delivered: {error}") from error
    finally:
        progress.close()
        await peer.close()
        sender.close()
    _report(sent, peer, seconds=seconds, as_json=as_json)


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
        f"{sent.name}: {sent.size} bytes in {seconds:.3f} s, {rate_text(goodput_bps)}, "
        f"{100 * fraction:.1f} % retransmitted, {used} paths, SHA-256 verified"
    )


def _path_figures(peer: Peer) -> list[dict[str, Any]]:
    return [
        {
            "path": path.index,
            "packets": path.counters.packets,
            "retransmitted": path.counters.retransmitted,
            "lost": path.counters.lost,
            "timeouts": path.counters.timeouts,
            "marked": path.counters.marked,
            "rtt_us": round(path.rtt.smoothed_s * 1e6) if path.rtt.sampled else None,
            "state": path.state.name.lower(),
        }
        for path in peer.paths
    ]
