"""Arguments shared by the commands, and running a command on an event loop until it ends or a signal stops it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import click
import uvloop

from devmem.errors import DevmemError
from netns.base.collector import tune_collector
from netns.base.options import HostPort
from netns.base.output import emit
from netns.base.printable import printable
from srd.errors import SrdError
from srd.proto.config import MAX_PATHS, ProtocolConfig
from srd.proto.wire.data import DEFAULT_PORT

STOP_WITHIN_S = 2.0
"""Longest time from a signal to the end of the process: enough to detect a peer that does not answer."""


class Interrupted(click.ClickException):
    """SIGINT or SIGTERM ended the command."""

    exit_code = 1


ADDRESS: Final = HostPort(example_port=DEFAULT_PORT)
"""The type of an argument HOST:PORT."""


def require_one_of(given: Mapping[str, object]) -> None:
    """Raise click.UsageError if more than one of these options is given, which is if its value is true."""
    names = [name for name, value in given.items() if value]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(names)} exclude each other; give one of them")


def is_directory(path: Path) -> bool:
    """Whether `path` is a directory; False for a name that the system refuses."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Whether `path` is a regular file; False for a name that the system refuses."""
    try:
        return path.is_file()
    except OSError:
        return False


def run(main: Coroutine[Any, Any, int], *, as_json: bool = False) -> int:
    """Run `main` on uvloop and return its exit status; SIGINT and SIGTERM cancel it, so that it cleans up.

    If the cleanup takes longer than STOP_WITHIN_S, because of a disk or a peer, the process exits without it. The error
    that ends it is an event, too, if events are printed.
    """
    backstop: list[threading.Timer] = []

    async def supervised() -> int:
        task = asyncio.ensure_future(main)
        caught: list[signal.Signals] = []

        def stop(number: signal.Signals) -> None:
            caught.append(number)
            task.cancel()
            backstop.append(threading.Timer(STOP_WITHIN_S, _end, [number]))
            backstop[-1].daemon = True
            backstop[-1].start()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        try:
            return await task
        except asyncio.CancelledError:
            if not caught:
                raise
            raise Interrupted(f"stopped by {caught[0].name}") from None

    tune_collector()
    running = supervised()
    try:
        return uvloop.run(running)
    except (SrdError, DevmemError, Interrupted) as error:
        if as_json:
            emit("error", reason=printable(error))
        raise
    finally:
        running.close()  # neither has begun if there was no loop, for lack of descriptors
        main.close()
        for timer in backstop:
            timer.cancel()


def _end(number: signal.Signals) -> None:
    """End the process from a thread, with the message and exit status of an orderly end."""
    os.write(sys.stderr.fileno(), f"srd: stopped by {number.name}\n".encode())
    os._exit(Interrupted.exit_code)


paths_option: Final = click.option(
    "--paths",
    type=click.IntRange(1, MAX_PATHS),
    help=f"Number of source ports to spray packets over.  [default: {ProtocolConfig().paths}]",
)
busy_poll_option = click.option(
    "--busy-poll",
    is_flag=True,
    help="Poll the sockets continuously instead of sleeping: uses a whole CPU, shortens round trips.",
)
