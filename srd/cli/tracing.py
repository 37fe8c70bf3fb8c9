"""The `--trace` option of all commands that open a peer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from srd.proto.trace import Trace
from srd.qlog.writer import TraceWriter, VantagePoint, is_no_trace

trace_option: Final = click.option(
    "--trace",
    "trace_file",
    type=click.Path(path_type=Path),
    help="Write a qlog trace (JSON-SEQ) of every burst, ACK and loss to this file; srd trace summarises it.",
)


def check_trace_file(trace_file: Path | None, *, inputs: list[Path]) -> None:
    """Refuse a trace file that is a directory, one of `inputs`, or no trace. Raises click.UsageError."""
    if trace_file is None:
        return
    if os.path.isdir(trace_file):  # noqa: PTH112 - False, too, for a name that the system refuses
        raise click.UsageError(f"--trace {trace_file}: is a directory; give a file in it")
    for path in inputs:
        if _same(trace_file, path):
            raise click.UsageError(f"--trace {trace_file}: is a file to send; the trace would replace it")
    with suppress(OSError, ValueError):  # the writer names what is wrong
        if is_no_trace(trace_file):
            raise click.UsageError(f"--trace {trace_file}: exists, and is no trace; give the name of a new file")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist; a name that the system refuses fails when it is opened
        return False


@contextmanager
def tracing(trace_file: Path | None, *, title: str, vantage_point: VantagePoint) -> Iterator[Trace | None]:
    """Yield a trace that writes to `trace_file` and is closed when the block is left; None without a file.

    Enter it when signal handlers are installed, so that a signal leaves the block. Raises TraceError.
    """
    if trace_file is None:
        yield None
        return
    now, wall_clock = time.monotonic(), datetime.now(UTC)
    with TraceWriter(trace_file, now=now, title=title, vantage_point=vantage_point, wall_clock=wall_clock) as trace:
        yield trace
