"""Arguments shared by the commands, and running a command on an event loop until it ends or a signal stops it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

import click

from devmem.errors import DevmemError
from netns.base import event_loop
from netns.base.collector import tune_collector
from netns.base.options import HostPort
from netns.base.output import emit
from netns.base.printable import printable
from srd.errors import SrdError

METRICS_PORT: Final = 9470
"""Where --metrics serves, and where `srd metrics` and `srd top` look, unless they are told another port."""
_F = TypeVar("_F", bound=Callable[..., Any])
STOP_WITHIN_S = 2.0
"""Longest time from a signal to the end of the process: enough to detect a peer that does not answer."""


class Interrupted(click.ClickException):
    """A signal ended the command before it was done."""

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number  # type: ignore[misc] # click reads it of the instance


METRICS_ADDRESS: Final = HostPort(default_port=METRICS_PORT)
"""The type of where metrics are."""
metrics_argument: Final = click.argument("address", type=METRICS_ADDRESS, default="127.0.0.1", metavar="[HOST[:PORT]]")


def port_option(default: int, *, help_text: str) -> Callable[[_F], _F]:
    """Add -p of what listens, or of what it connects to."""
    return click.option(
        "-p", "--port", type=click.IntRange(0, 65535), default=default, show_default=True, help=help_text
    )


bind_option: Final = click.option("-B", "--bind", metavar="HOST", help="The local address.  [default: all]")


def require_one_of(given: Mapping[str, object]) -> None:
    """Raise click.UsageError if more than one of these options is given, which is if its value is true."""
    names = [name for name, value in given.items() if value]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(names)} exclude each other; give one of them")


def run(main: Coroutine[Any, Any, int], *, as_json: bool = False, is_daemon: bool = False) -> int:
    """Run `main` and return its exit status; SIGINT and SIGTERM cancel it, so that it cleans up.

    A daemon runs until a signal stops it, with status 0. If the cleanup takes longer than STOP_WITHIN_S, because of a
    disk or a peer, the process exits without it. The error that ends it is an event, too, if events are printed.
    """
    backstop: list[threading.Timer] = []

    async def supervised() -> int:
        task = asyncio.ensure_future(main)
        caught: list[signal.Signals] = []

        def stop(number: signal.Signals) -> None:
            caught.append(number)
            task.cancel()
            status = 0 if is_daemon else 128 + number
            backstop.append(threading.Timer(STOP_WITHIN_S, _end, [number, status]))
            backstop[-1].daemon = True
            backstop[-1].start()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        try:
            return await task
        except asyncio.CancelledError:
            if not caught:
                raise
            if is_daemon:
                return 0
            raise Interrupted(f"stopped by {caught[0].name}", number=caught[0]) from None

    tune_collector()
    running = supervised()
    try:
        return event_loop.run(running)
    except (SrdError, DevmemError, Interrupted) as error:
        if as_json:
            emit("error", reason=printable(error))
        raise
    finally:
        running.close()  # neither has begun if there was no loop, for lack of descriptors
        main.close()
        for timer in backstop:
            timer.cancel()


def _end(number: signal.Signals, status: int) -> None:
    """End the process from a thread, with the message and exit status of an orderly end."""
    os.write(sys.stderr.fileno(), f"srd: stopped by {number.name}\n".encode())
    os._exit(status)
