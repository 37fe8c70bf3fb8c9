"""The command line of the applications."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from nitro_emu.errors import NitroError
from scripts.benches.card.worker import flood, pingpong, rate, shares, writes
from scripts.benches.veth.worker.bulk import TURN_BYTES
from scripts.benches.veth.worker.rate import MESSAGES
from scripts.harness.errors import BenchError
from srd.perf.sweep.progress import WARM_UP


@click.group()
def main() -> None:
    """Run one application of the bench `card`; prints its figures as events."""


def _run(role: Callable[[], int]) -> None:
    """Run; print an error as one line."""
    try:
        sys.exit(role())
    except (BenchError, NitroError, OSError) as error:
        raise click.ClickException(str(error)) from error
    except EOFError as error:
        raise click.ClickException("the other application has gone") from error


_run_dir = click.argument("run_dir", type=click.Path(path_type=Path))
_device = click.argument("device")
_host = click.argument("host")
_port = click.argument("port", type=int)
_seconds = click.option("--seconds", type=float, required=True)
_vfs = click.option("--vfs", type=int, required=True)
_turn_bytes = click.option("--turn-bytes", type=int, default=TURN_BYTES, help="Bytes per turn, at both ends.")
_messages = click.option("--messages", type=int, default=MESSAGES, help="Messages per turn, at both ends.")
_kind = click.option("--kind", type=click.Choice(flood.KINDS), required=True)


@main.command()
@_run_dir
@_device
def ping_receive(*, run_dir: Path, device: str) -> None:
    """Echo messages."""
    _run(lambda: pingpong.receive(run_dir, device=device))


@main.command()
@_run_dir
@_device
@_host
@_port
@_seconds
@click.option("--warm-up", type=int, default=WARM_UP, help="Round trips that do not count.")
@click.option("--fewest", type=int, default=pingpong.FEWEST, help="Round trips, if SECONDS are too short for them.")
def ping_send(*, run_dir: Path, device: str, host: str, port: int, seconds: float, warm_up: int, fewest: int) -> None:
    """Measure round trips for SECONDS."""
    _run(
        lambda: pingpong.send(
            run_dir, device=device, host=host, port=port, seconds=seconds, warm_up=warm_up, fewest=fewest
        )
    )


@main.command()
@_run_dir
@_device
@_turn_bytes
def write_receive(*, run_dir: Path, device: str, turn_bytes: int) -> None:
    """Offer memory for writes, and check every byte."""
    _run(lambda: writes.receive(run_dir, device=device, turn_bytes=turn_bytes))


@main.command()
@_run_dir
@_device
@_host
@_port
@_seconds
@_turn_bytes
def write_send(*, run_dir: Path, device: str, host: str, port: int, seconds: float, turn_bytes: int) -> None:
    """Write for SECONDS of timed writing."""
    _run(lambda: writes.send(run_dir, device=device, host=host, port=port, seconds=seconds, turn_bytes=turn_bytes))


@main.command()
@_run_dir
@_device
@_messages
def rate_receive(*, run_dir: Path, device: str, messages: int) -> None:
    """Receive small messages, and check every one."""
    _run(lambda: rate.receive(run_dir, device=device, messages=messages))


@main.command()
@_run_dir
@_device
@_host
@_port
@_seconds
@_messages
def rate_send(*, run_dir: Path, device: str, host: str, port: int, seconds: float, messages: int) -> None:
    """Send small messages for SECONDS of timed sending."""
    _run(lambda: rate.send(run_dir, device=device, host=host, port=port, seconds=seconds, messages=messages))


@main.command()
@_run_dir
@_vfs
def shares_receive(*, run_dir: Path, vfs: int) -> None:
    """Offer memory at each of VFS devices, and check every byte at the end."""
    _run(lambda: shares.receive(run_dir, vfs=vfs))


@main.command()
@_run_dir
@_host
@_port
@_vfs
@_seconds
def shares_send(*, run_dir: Path, host: str, port: int, vfs: int, seconds: float) -> None:
    """Write from all of VFS devices for SECONDS."""
    _run(lambda: shares.send(run_dir, host=host, port=port, vfs=vfs, seconds=seconds))


@main.command()
@_run_dir
@_device
@_kind
def flood_receive(*, run_dir: Path, device: str, kind: str) -> None:
    """Receive what a neighbour sends, until it is killed."""
    _run(lambda: flood.receive(run_dir, device=device, kind=kind))


@main.command()
@_run_dir
@_device
@_host
@_port
@_kind
def flood_send(*, run_dir: Path, device: str, host: str, port: int, kind: str) -> None:
    """Be a neighbour until it is killed."""
    _run(lambda: flood.send(run_dir, device=device, host=host, port=port, kind=kind))
