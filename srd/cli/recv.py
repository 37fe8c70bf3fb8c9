"""`srd recv`: the receiving daemon."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from devmem import DevmemError, RegionError
from srd.cli.devmem import DeviceMemory
from srd.cli.options import HostPort, Interrupted, Size, busy_poll_option, emit, is_directory, run
from srd.cli.progress import TransferProgress
from srd.cli.tracing import check_trace_file, trace_option, tracing
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import SrdError
from srd.io.addresses import host_port_text
from srd.peer import Peer
from srd.proto.trace import Trace
from srd.transfer.receiving import FileReceiver, Received
from srd.transfer.words import Offer

PROGRESS_INTERVAL_S = 0.05
"""Between two progress events: fine enough to see a stall of a tenth of a second."""


@click.command()
@click.option("--listen", required=True, type=HostPort(), help="Address to listen on; port 0 picks a free one.")
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Directory that files appear in.")
@click.option("--once", is_flag=True, help="End after one file, in success or failure.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option("--devmem", type=Size(), help="Have payload land in a region of this size (256M, 1G), and nowhere else.")
@busy_poll_option
@trace_option
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines on stdout.")
def recv(
    *,
    listen: tuple[str, int],
    output: Path,
    once: bool,
    overwrite: bool,
    devmem: int | None,
    busy_poll: bool,
    trace_file: Path | None,
    as_json: bool,
) -> int:
    """Receive files into a directory, until stopped.

    A file appears under its name only when every byte was verified (SHA-256), synced and renamed; until then it has
    a temporary name. Files that exist are refused without --overwrite, names that lead out of the directory always.
    """
    if not is_directory(output):
        raise click.UsageError(f"--output {output}: is not a directory; make it first")
    try:
        tempfile.TemporaryFile(dir=output).close()  # what the mode bits say is not what root or a file system do
    except OSError as error:
        raise click.ClickException(
            f"--output {output}: cannot be written to ({error.strerror}); choose another directory"
        ) from error
    check_trace_file(trace_file, inputs=[])
    memory = None if devmem is None else DeviceMemory(devmem)
    config = replace(memory.config if memory else EndpointConfig(), busy_poll=busy_poll)
    daemon = Daemon(output, config=config, overwrite=overwrite, memory=memory, as_json=as_json)
    return run(_serve(daemon, listen, once=once, trace_file=trace_file))


async def _serve(daemon: Daemon, listen: tuple[str, int], *, once: bool, trace_file: Path | None) -> int:
    with tracing(trace_file, title=f"srd recv on {host_port_text(*listen)}", vantage_point="server") as trace:
        return await daemon.serve(listen, once=once, trace=trace)


class Daemon:
    """Serves any number of peers at a time."""

    def __init__(
        self, directory: Path, *, config: EndpointConfig, overwrite: bool, memory: DeviceMemory | None, as_json: bool
    ) -> None:
        self._directory = directory
        self._config = config
        self._overwrite = overwrite
        self._memory = memory
        self._as_json = as_json
        self._console = Console(stderr=True, highlight=False)
        self._transfers = 0  # going on now
        self._outcomes: asyncio.Queue[int] = asyncio.Queue()  # exit status that each file asks for

    async def serve(self, listen: tuple[str, int], *, once: bool, trace: Trace | None) -> int:
        """Listen until cancelled; with `once` until one file has ended, and return how it did."""
        endpoint = await Endpoint.listen(listen[0], port=listen[1], config=self._config, trace=trace)
        host, port = endpoint.address
        if self._as_json:
            emit("listening", address=host, port=port)
        else:
            self._say(f"listening on {host_port_text(host, port)}, files go to {self._directory}")
        accepting = asyncio.ensure_future(self._accept(endpoint))
        try:
            if self._memory:
                self._memory.bind(endpoint)
            return await self._outcome(accepting, once=once)
        except asyncio.CancelledError:
            if self._transfers:
                raise Interrupted(f"stopped with {self._transfers} transfer(s) unfinished") from None
            return 0
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            await endpoint.close()
            if self._memory:
                with suppress(RegionError):  # a transfer that was cut off still looks at it: it goes with the process
                    self._memory.close()

    async def _outcome(self, accepting: asyncio.Future[None], *, once: bool) -> int:
        """Wait for files to end; raises what made accepting end."""
        while True:
            ended: asyncio.Future[int] = asyncio.ensure_future(self._outcomes.get())
            waiting: set[asyncio.Future[Any]] = {ended, accepting}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                ended.cancel()
                try:
                    accepting.result()
                except BaseExceptionGroup as group:
                    raise group.exceptions[0] from None
            elif once:
                return ended.result()

    async def _accept(self, endpoint: Endpoint) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._serve_peer(await endpoint.accept()))

    async def _serve_peer(self, peer: Peer) -> None:
        """Take files from a peer until it parts; a failed one ends it."""
        progress: TransferProgress | None = None
        sampler: asyncio.Future[None] | None = None

        def on_start(offer: Offer) -> None:
            nonlocal progress, sampler
            self._transfers += 1
            progress = TransferProgress(offer.name, total_bytes=offer.size, visible=not self._as_json)
            sampler = asyncio.ensure_future(self._sample(peer, progress))

        def stop() -> None:
            nonlocal progress, sampler
            if progress is not None and sampler is not None:
                sampler.cancel()
                progress.close()
                self._transfers -= 1
            progress = sampler = None

        receiver = FileReceiver(peer, directory=self._directory, overwrite=self._overwrite, on_start=on_start)
        try:
            while (received := await receiver.receive()) is not None:
                stop()
                self._report(received, peer)
                self._outcomes.put_nowait(0)
        except (SrdError, DevmemError) as error:
            stop()
            self._say(str(error))
            self._outcomes.put_nowait(1)
        finally:
            stop()
            receiver.close()
            await peer.close()

    async def _sample(self, peer: Peer, progress: TransferProgress) -> None:
        """Show, or print, how far a transfer is."""
        base_bytes, started, shown = peer.landed_bytes, None, -1
        while True:
            landed_bytes = peer.landed_bytes - base_bytes
            if landed_bytes and started is None:
                started = time.monotonic()
            if started is not None and landed_bytes != shown:
                shown = landed_bytes
                progress.show(landed_bytes)
                if self._as_json:
                    emit("progress", seconds=round(time.monotonic() - started, 4), bytes=landed_bytes)
            await asyncio.sleep(PROGRESS_INTERVAL_S)

    def _report(self, received: Received, peer: Peer) -> None:
        if self._as_json:
            emit(
                "received",
                name=received.name,
                path=str(received.path),
                bytes=received.size,
                seconds=round(received.seconds, 6),
                sha256=received.sha256,
                longest_stall_ms=round(received.longest_stall_ms, 3),
                packets=peer.packets_received,
                duplicates=peer.duplicates_received,
                **(self._memory.figures() if self._memory else {}),
            )
        else:
            self._say(f"{received.name}: {received.size} bytes, SHA-256 {received.sha256} verified")

    def _say(self, text: str) -> None:
        """Print one line, however long, to a person; names in it are not markup."""
        self._console.print(f"srd recv: {text}", markup=False, soft_wrap=True)
