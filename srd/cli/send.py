"""`srd send`: sends files, and exits when the receiver has verified every one."""

from __future__ import annotations

import math
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from netns.base.addresses import host_port_text
from netns.base.files import write_whole
from netns.base.options import Duration, Rate, json_lines_option
from netns.base.standard_streams import was_closed
from srd.cli.delivery import Delivery, SendOptions
from srd.cli.options import run
from srd.cli.peer_options import peer_options
from srd.cli.security import TargetAddress, check_fingerprint, first_contact, known_hosts_option
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.file_transfer.errors import TransferError
from srd.file_transfer.listing import Listing, list_all
from srd.file_transfer.outgoing import OutgoingFile
from srd.file_transfer.protocol import FILE_HASHES, MAX_NAME_BYTES, MAX_RETRY_S, STANDARD_STREAM, path_untrusted
from srd.peer import Peer
from srd.proto.config import ProtocolConfig
from srd.proto.wire.data import DEFAULT_PORT
from srd.secure.keys import directory

RETRY_FOR_S = 60
"""Default of --retry-for: long enough for a restart of the receiver, a migration of its host, or a flapping link."""
LEAST_LIMIT_BPS = 1_000_000
"""Least --limit: a chunk takes 8 s then, far less than the time after which a receiver gives up (`STALL_S`)."""


@click.command()
@click.argument("arguments", metavar="PATH... HOST[:PORT][#FINGERPRINT]", nargs=-1, required=True)
@click.option(
    "--retry-for",
    "retry_for_s",
    type=Duration(most_s=MAX_RETRY_S),
    default=f"{RETRY_FOR_S}s",
    show_default=True,
    help="Retry for this long when the receiver is lost during a file; 0: fail at once.",
)
@click.option(
    "--name", help="Name of the file that standard input (-), or a pipe, becomes in the receiver's directory."
)
@click.option("--skip-identical", is_flag=True, help="Send no file that the receiver has, with the same hash.")
@click.option(
    "--hash",
    "file_hash",
    type=click.Choice(FILE_HASHES),
    default=FILE_HASHES[0],
    show_default=True,
    help="Hash of whole files that both ends compare.",
)
@click.option("--limit", "limit_bps", type=Rate(least_bps=LEAST_LIMIT_BPS), help="Send at most this fast (500mbit).")
@click.option("--devmem", is_flag=True, help="Map files, and send them directly from the page cache; needs --plain.")
@peer_options
@known_hosts_option
@json_lines_option
def send(*, arguments: tuple[str, ...], retry_for_s: float, name: str | None, **given: Any) -> int:
    """Send files and directories to an `srd recv` at HOST.

    A directory is sent with all that is below it, under its own name; links in it are not followed, and said to be
    skipped. Permissions and times of modification are kept, and holes of files are not sent.

    The PATH - is standard input, of any length: tar c models | srd send - receiver. It goes to an srd recv -o -,
    or with --name NAME into the directory of an srd recv.

    All is encrypted. The receiver must have the key with the FINGERPRINT, which srd recv prints. Without it a receiver
    is trusted the first time, and must have the same key from then on, as with SSH.

    The exit status is 0 only if the receiver has verified every byte of every file. What it refuses is said, and the
    other files are sent. If the receiver is lost, the transfer is retried (--retry-for) and resumed: what it already
    has is not sent again. So it is by a second srd send, of the same files after the first one was killed.
    """
    if len(arguments) < 2:
        raise click.UsageError("give at least one PATH, and HOST last")
    options = SendOptions(retry_for_s=math.ceil(retry_for_s), **given)
    *paths, target = arguments
    pipe = _pipe(paths, name=name, devmem=options.devmem)
    address = TargetAddress(default_port=DEFAULT_PORT).convert(target, None, None)
    listing = _listing(paths, pipe)
    options.check_trace(inputs=[file.path for file in listing.files])
    return run(_send(listing, address, config=_config(options, address), options=options), as_json=options.as_json)


def _config(options: SendOptions, target: tuple[str, int, str | None]) -> EndpointConfig:
    """Return the endpoint's settings. Raises click.UsageError for options that contradict each other."""
    if options.devmem and not options.plain:
        raise click.UsageError(
            "--devmem: sends the pages of a file as they are, which cannot be encrypted; add --plain"
        )
    security = options.security(known_hosts=options.known_hosts)
    check_fingerprint(target, security)
    return EndpointConfig(
        protocol=ProtocolConfig(paths=options.paths),
        adaptive_poll_s=0.0,  # the thread that reads files wants the CPU
        busy_poll=options.busy_poll,
        security=security,
    )


def _pipe(paths: list[str], *, name: str | None, devmem: bool) -> OutgoingFile | None:
    """Return what is sent until its end: standard input, or a FIFO, if it is one of the paths.

    Raises click.UsageError for options that contradict it.
    """
    pipes = [path for path in paths if _is_pipe(path)]
    if not pipes:
        if name is not None:
            raise click.UsageError("--name: is for standard input and pipes; give the PATH -")
        return None
    (path, *more) = pipes
    if more:
        raise click.UsageError(f"{more[0]}: one srd send sends one pipe, or standard input, once; send it by another")
    if devmem:
        raise click.UsageError(f"{path}: --devmem maps files, and this is none; leave it out")
    try:
        components = path_untrusted(name) if name is not None else ()
    except TransferError as error:
        raise click.UsageError(f"--name: {error}") from error
    if components == (STANDARD_STREAM,):
        raise click.UsageError("--name -: is no name; give another one, or leave it out for an srd recv -o -")
    is_nameless = path == STANDARD_STREAM or path.startswith(("/dev/", "/proc/"))  # a shell's <(command) is /dev/fd/63
    own_name = STANDARD_STREAM if is_nameless else Path(path).name
    return OutgoingFile(Path(path), name or own_name, transfer=secrets.token_hex(16), pipe_fd=_open_pipe(path))


def _is_pipe(path: str) -> bool:
    try:
        return path == STANDARD_STREAM or stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 - also of impossible names
    except (OSError, ValueError):
        return False


def _open_pipe(path: str) -> int:
    """Return a descriptor to read from. Raises click.UsageError, click.ClickException."""
    if path == STANDARD_STREAM:
        if was_closed(0):
            raise click.UsageError("-: standard input is closed")
        return sys.stdin.fileno()
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # its writer may come later
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be read: {error.strerror}") from error


def _listing(names: list[str], pipe: OutgoingFile | None) -> Listing:
    """Return what to send. Raises click.UsageError for what is not there."""
    paths = [Path(name) for name in names if not _is_pipe(name)]
    for path in paths:
        if not os.path.isdir(path) and not os.path.isfile(path):  # noqa: PTH112, PTH113 - also of impossible names
            is_there = path.exists() if len(path.name) <= MAX_NAME_BYTES else False
            what = "is a device or a socket, which is not sent" if is_there else "no such file or directory"
            raise click.UsageError(f"{path}: {what}; {'give a file' if is_there else 'check the name'}")
    listing = list_all(paths, secret=transfer_secret())
    listing.files += [pipe] if pipe is not None else []
    return listing


async def _send(
    listing: Listing,
    target: tuple[str, int, str | None],
    *,
    config: EndpointConfig,
    options: SendOptions,
) -> int:
    host, port, fingerprint = target
    name = host_port_text(host, port)
    with options.tracing(title=f"srd send to {name}", vantage_point="client") as trace:
        async with await Endpoint.open(towards=host, config=config, trace=trace) as endpoint:

            async def connect() -> Peer:
                peer = await endpoint.connect(host, port=port, fingerprint=fingerprint)
                if peer.is_first_contact:
                    said = first_contact(name, fingerprint=peer.identity.fingerprint)
                    click.echo(f"srd send: {said}", err=True)
                return peer

            return await Delivery(listing, connect, options=options).run()


_BYTES = 32


def transfer_secret() -> bytes:
    """Return this user's secret, made at the first use. Where it cannot be kept, it is of this process alone."""
    path = directory() / "transfer_secret"
    for _ in range(2):
        try:
            secret = path.read_bytes()
        except OSError:
            secret = b""
        if len(secret) == _BYTES:
            return secret
        _make(path)
    return secrets.token_bytes(_BYTES)


def _make(path: Path) -> None:
    """Make the file; leave one that another process has made meanwhile."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, secrets.token_bytes(_BYTES), mode=0o600, exclusive=True)
