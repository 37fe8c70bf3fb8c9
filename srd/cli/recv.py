"""`srd recv`: the receiving daemon."""

from __future__ import annotations

import logging
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from devmem import RegionError
from netns.base.addresses import host_port_text
from netns.base.options import Size
from netns.base.standard_streams import was_closed
from srd.cli.daemon import Daemon, OpenListener, RecvListener
from srd.cli.devmem import DeviceMemory
from srd.cli.log import log_level, log_options, logging_to_stderr
from srd.cli.metrics import metrics_option
from srd.cli.options import ADDRESS, busy_poll_option, is_directory, run
from srd.cli.security import SecurityOptions, authorized_keys_option, security_options
from srd.cli.tracing import check_trace_file, trace_option, tracing
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.file_transfer.directory import Directory
from srd.file_transfer.inbox import MAX_TRANSFERS, Inbox
from srd.file_transfer.protocol import STANDARD_STREAM
from srd.file_transfer.standard_output import StandardOutput
from srd.metrics.serving import serving
from srd.sd_notify import notifying_systemd

_log: Final = logging.getLogger(__name__)


@click.command()
@click.option("--listen", type=ADDRESS, help="Address to listen on; port 0 selects a free port.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Directory to store the files in, or - for standard output; required.",
)
@click.option("--once", is_flag=True, help="Exit after all files of one srd send; with status 1 if one failed.")
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
@metrics_option
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON lines on stdout.")
def recv(
    *,
    listen: tuple[str, int] | None,
    output: Path | None,
    once: bool,
    overwrite: bool,
    max_transfers: int,
    verbose: bool,
    quiet: bool,
    as_json: bool,
    **endpoint: Any,
) -> int:
    """Receive files into a directory until stopped.

    Prints the address and the fingerprint of its key: what srd send takes. All is encrypted.

    A file has a temporary name until it has been received completely, verified (BLAKE3) and synced; then it is renamed
    to its final name. Directories are made as they are sent; no name and no link leads out of DIRECTORY. Existing files
    are refused without --overwrite. The partial files of a lost sender are kept while the sender retries (srd send
    --retry-for), also across a restart of srd recv.

    With -o - one file, or the standard input of srd send -, goes to standard output, and srd recv ends:
    srd recv --listen 0.0.0.0:19870 -o - | tar x. What is written is verified chunk by chunk and in order, and the
    status is 0 only if the whole is verified, too. The receiver waits for a slow reader, and the sender for it.

    The log goes to stderr: files that failed as errors; senders that were lost or refused, and what cannot be cleaned
    up, as warnings; the address and each received file as information; peers for debugging. Started by systemd it
    reports its state, and feeds the watchdog.
    """
    level = log_level(verbose=verbose, quiet=quiet)
    own = EndpointOptions(**endpoint)
    if listen is None:
        raise click.UsageError("give --listen HOST:PORT, where senders reach it")
    if output is None:
        raise click.UsageError("give --output DIRECTORY, where the files go, or --output - for standard output")
    source = _by_endpoint(listen, own)
    if str(output) == STANDARD_STREAM:
        if as_json:
            raise click.UsageError("--json: prints events on standard output, where the file goes; leave it out")
        with logging_to_stderr("srd recv", level=level):
            return _to_standard_output(_notifying(source))
    _check_output(output)
    daemon = Daemon(Inbox(Directory(output, overwrite=overwrite), max_transfers=max_transfers), as_json=as_json)
    with logging_to_stderr("srd recv", level=level):
        return run(daemon.serve(_notifying(source), once=once), as_json=as_json)


def _to_standard_output(source: OpenListener) -> int:
    if was_closed(1):
        raise click.UsageError("--output -: standard output is closed")
    place = StandardOutput(sys.stdout.fileno())
    try:
        return run(Daemon(Inbox(place, max_transfers=1), as_json=False).serve(source, once=True))
    finally:
        place.close()


def _notifying(source: OpenListener) -> OpenListener:
    """Return the same, which tells systemd when it is open and when it closes."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[RecvListener]:
        async with source() as found, notifying_systemd(f"listening on {found.title}"):
            yield found

    return opened


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
class EndpointOptions(SecurityOptions):
    """Options of `srd recv` that are for an endpoint of this process."""

    devmem: int | None
    authorized_keys: Path | None
    busy_poll: bool
    trace_file: Path | None
    metrics: tuple[str, int] | None


def _by_endpoint(listen: tuple[str, int], own: EndpointOptions) -> OpenListener:
    """Listen with an endpoint of this process. Raises click.UsageError for options that contradict each other."""
    check_trace_file(own.trace_file, inputs=[])
    security = own.security(authorized_keys=own.authorized_keys)
    memory = None if own.devmem is None else DeviceMemory(own.devmem)
    config = replace(
        memory.config if memory else EndpointConfig(),
        adaptive_poll_s=0.0,  # the thread that stores files wants the CPU
        busy_poll=own.busy_poll,
        security=security,
    )
    title = f"srd recv on {host_port_text(*listen)}"

    @asynccontextmanager
    async def opened() -> AsyncIterator[RecvListener]:
        with tracing(own.trace_file, title=title, vantage_point="server") as trace:
            endpoint = await Endpoint.listen(listen[0], port=listen[1], config=config, trace=trace)
            try:
                if memory:
                    memory.bind(endpoint)
                async with serving(own.metrics, endpoint, title=title, say=_log.info) as metrics:
                    yield _described(endpoint, figures=memory.figures if memory else dict, metrics=metrics)
            finally:
                await endpoint.close()
                with suppress(RegionError):  # a cancelled transfer may still use the memory; the process exit frees it
                    if memory:
                        memory.close()

    return opened


def _described(
    endpoint: Endpoint, *, figures: Callable[[], dict[str, int]], metrics: tuple[str, int] | None
) -> RecvListener:
    host, port = endpoint.address
    code = endpoint.identity.fingerprint
    reached_as = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    hint = f"srd send FILE {host_port_text(reached_as, port)}{'#' * bool(code)}{code}"
    fields: dict[str, object] = {"address": host, "port": port, "fingerprint": code}
    if metrics is not None:
        fields["metrics"] = host_port_text(*metrics)
    return RecvListener(endpoint, host_port_text(host, port), hint, fields, figures)
