"""Arguments shared by the commands, and running a command on an event loop until it ends or a signal stops it."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click
import uvloop

from devmem.errors import DevmemError
from netns.base.printable import printable
from netns.base.units import UnitError, parse_duration_us, parse_rate_bps, parse_size
from srd.errors import SrdError
from srd.proto.wire.data import DEFAULT_PORT

STOP_WITHIN_S = 2.0
"""Longest time from a signal to the end of the process: enough to detect a peer that does not answer."""


class Interrupted(click.ClickException):
    """SIGINT or SIGTERM ended the command."""

    exit_code = 1


class HostPort(click.ParamType[tuple[str, int]]):
    """HOST:PORT, with an IPv6 address in brackets."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return (host, port); fail with one line that describes the error."""
        if isinstance(value, tuple):
            return value
        host, colon, port = str(value).rpartition(":")
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
        if not colon or not 0 <= number <= 65535:
            self.fail(
                f"{value!r} is not HOST:PORT with a port of 0 to 65535, such as 192.0.2.1:{DEFAULT_PORT}", param, ctx
            )
        if ":" in host and not (host.startswith("[") and host.endswith("]")):
            self.fail(f"{value!r}: put an IPv6 address in brackets, such as [::1]:{DEFAULT_PORT}", param, ctx)
        return host.removeprefix("[").removesuffix("]"), number


class Size(click.ParamType[int]):
    """A size such as 256M or 1.5G, as bytes (netns.base.units)."""

    name = "SIZE"

    def __init__(self, *, least: int = 0, most: int | None = None) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes; fail with one line that describes the error."""
        try:
            size = parse_size(value)
        except UnitError as error:
            self.fail(str(error), param, ctx)
        if size < self._least:
            self.fail(f"{value} is too small; at least {self._least} bytes", param, ctx)
        if self._most is not None and size > self._most:
            self.fail(f"{value} is too large; at most {self._most} bytes", param, ctx)
        return size


class Duration(click.ParamType[float]):
    """A duration such as 4ms or 90s, as seconds (netns.base.units)."""

    name = "DURATION"

    def __init__(self, *, most_s: float) -> None:
        self._most_s = most_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; fail with one line that describes the error."""
        try:
            seconds = parse_duration_us(value) / 1e6
        except UnitError as error:
            self.fail(str(error), param, ctx)
        if not 0 <= seconds <= self._most_s:
            self.fail(f"{value} is out of range; give 0 to {self._most_s:.10g}s", param, ctx)
        return seconds


class Rate(click.ParamType[int]):
    """A rate such as 500mbit or 10MBps, as bit/s (netns.base.units)."""

    name = "RATE"

    def __init__(self, *, least_bps: int) -> None:
        self._least_bps = least_bps

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bit/s; fail with one line that describes the error."""
        try:
            rate_bps = parse_rate_bps(value)
        except UnitError as error:
            self.fail(str(error), param, ctx)
        if rate_bps < self._least_bps:
            self.fail(f"{value} is too slow; give at least {self._least_bps // 1_000_000}mbit", param, ctx)
        return rate_bps


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


def _tune_collector() -> None:
    """Exclude existing objects, which live as long as the process, from garbage collection, and collect less often.

    Packets form no reference cycles, so reference counts free them, and collections would only cost time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


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

    _tune_collector()
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


def emit(event: str, **fields: object) -> None:
    """Print one event as a JSON line."""
    click.echo(json.dumps({"event": event, **fields}))


busy_poll_option = click.option(
    "--busy-poll",
    is_flag=True,
    help="Poll the sockets continuously instead of sleeping: uses a whole CPU, shortens round trips.",
)
