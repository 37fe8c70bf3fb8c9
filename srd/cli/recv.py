"""`srd recv`: the receiving daemon."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from devmem import RegionError
from netns.base.addresses import host_port_text
from netns.base.options import Size, json_lines_option
from netns.base.standard_streams import was_closed
from srd.cli.daemon import Daemon, OpenListener, RecvListener
from srd.cli.devmem import DeviceMemory
from srd.cli.log import log_level, log_options, logging_to_stderr
from srd.cli.metrics import metrics_option
from srd.cli.options import bind_option, port_option, run
from srd.cli.peer_options import PeerOptions, peer_options
from srd.cli.security import authorized_keys_option
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.file_transfer.directory import Directory
from srd.file_transfer.protocol import STANDARD_STREAM
from srd.file_transfer.sessions import MAX_TRANSFERS, TransferSessions
from srd.file_transfer.standard_output import StandardOutput
from srd.listening import listen_at
from srd.metrics.serving import serving
from srd.proto.wire.data import DEFAULT_PORT
from srd.sd_notify import notifying_systemd

INCOMING: Final = Path("incoming")
"""Where files go by default: not into the current directory, where a stranger's file might be one that is run."""
_log: Final = logging.getLogger(__name__)


@click.command()
@port_option(DEFAULT_PORT, help_text="UDP port; 0: any that is free.")
@bind_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help=f"Directory to store the files in, or - for standard output.  [default: {INCOMING}, which is made]",
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
@peer_options
@authorized_keys_option
@metrics_option
@log_options
@json_lines_option
def recv(
    *,
    port: int,
    bind: str | None,
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

    Without options it listens at all addresses of this host, takes files from anybody, and stores them in ./incoming.
    It prints what srd send takes: the address, and the fingerprint of its key. All is encrypted.

    A file has a temporary name until it has been received completely, verified (BLAKE3) and synced; then it is renamed
    to its final name. Directories are made as they are sent; no name and no link leads out of DIRECTORY. Existing files
    are refused without --overwrite. The partial files of a lost sender are kept while the sender retries (srd send
    --retry-for), also across a restart of srd recv.

    With -o - one file, or the standard input of srd send -, goes to standard output, and srd recv ends:
    srd recv -o - | tar x. What is written is verified chunk by chunk and in order, and the
    status is 0 only if the whole is verified, too. The receiver waits for a slow reader, and the sender for it.

    The log goes to stderr: files that failed as errors; senders that were lost or refused, and what cannot be cleaned
    up, as warnings; the address and each received file as information; peers for debugging. Started by systemd it
    reports its state, and feeds the watchdog.
    """
    level = log_level(verbose=verbose, quiet=quiet)
    own = ListenOptions(**endpoint)
    source = _by_endpoint((bind, port), own)
    if str(output) == STANDARD_STREAM:
        if as_json:
            raise click.UsageError("--json-lines: prints events on standard output, where the file goes; leave it out")
        with logging_to_stderr("srd recv", level=level):
            return _to_standard_output(source)
    place = Directory(_checked(output), overwrite=overwrite)
    daemon = Daemon(TransferSessions(place, max_transfers=max_transfers), as_json=as_json)
    with logging_to_stderr("srd recv", level=level):
        return run(daemon.serve(source, once=once), as_json=as_json, is_daemon=not once)


def _to_standard_output(source: OpenListener) -> int:
    if was_closed(1):
        raise click.UsageError("--output -: standard output is closed")
    place = StandardOutput(sys.stdout.fileno())
    try:
        return run(Daemon(TransferSessions(place, max_transfers=1), as_json=False).serve(source, once=True))
    finally:
        place.close()


def _checked(given: Path | None) -> Path:
    """Return the directory. Raises click.UsageError or click.ClickException for what no files can be stored in."""
    output = INCOMING if given is None else given
    try:
        if given is None:
            output.mkdir(exist_ok=True)
        elif not os.path.isdir(output):  # noqa: PTH112 - False, too, for a name that the system refuses
            raise click.UsageError(f"--output {output}: is not a directory; make it first")
        tempfile.TemporaryFile(dir=output).close()  # the mode bits do not show it for root or read-only file systems
    except OSError as error:
        raise click.ClickException(
            f"--output {output}: cannot be written to ({error.strerror}); choose another directory"
        ) from error
    return output


@dataclass(frozen=True, slots=True)
class ListenOptions(PeerOptions):
    """Options of `srd recv` that are for an endpoint of this process."""

    devmem: int | None
    authorized_keys: Path | None
    metrics: tuple[str, int] | None


def _by_endpoint(where: tuple[str | None, int], own: ListenOptions) -> OpenListener:
    """Listen with an endpoint of this process. Raises click.UsageError for options that contradict each other."""
    own.check_trace()
    host, port = where
    security = own.security(authorized_keys=own.authorized_keys)
    memory = None if own.devmem is None else DeviceMemory(own.devmem)
    found = memory.config if memory else EndpointConfig()
    config = replace(
        found,
        protocol=replace(found.protocol, paths=own.paths),
        adaptive_poll_s=0.0,  # the thread that stores files wants the CPU
        busy_poll=own.busy_poll,
        security=security,
    )
    title = f"srd recv on {host_port_text(host or 'all addresses', port)}"

    @asynccontextmanager
    async def opened() -> AsyncIterator[RecvListener]:
        with own.tracing(title=title, vantage_point="server") as trace:
            endpoint = await listen_at(host, partial(Endpoint.listen, port=port, config=config, trace=trace))
            try:
                if memory:
                    memory.bind(endpoint)
                async with (
                    serving(own.metrics, endpoint, title=title, say=_log.info) as metrics,
                    notifying_systemd(f"listening on {host_port_text(*endpoint.address)}"),
                ):
                    yield RecvListener(endpoint, metrics, memory.figures if memory else dict)
            finally:
                await endpoint.close()
                with suppress(RegionError):  # a cancelled transfer may still use the memory; the process exit frees it
                    if memory:
                        memory.close()

    return opened
