"""The `--trace` option of the commands that move packets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from srd.cli.options import is_directory
from srd.proto.trace import Trace
from srd.qlog.writer import TraceWriter, VantagePoint

trace_option: Final = click.option(
    "--trace",
    "trace_file",
    type=click.Path(path_type=Path),
    help="Write a trace of every burst, ack and loss to this file (qlog's JSON-SEQ); srd trace sums it up.",
)


def check_trace_file(trace_file: Path | None, *, inputs: list[Path]) -> None:
    """Refuse what would destroy something. Raises click.UsageError."""
    if trace_file is None:
        return
    if is_directory(trace_file):
        raise click.UsageError(f"--trace {trace_file}: is a directory; give a file in it")
    for path in inputs:
        if _same(trace_file, path):
            raise click.UsageError(f"--trace {trace_file}: is a file to send; the trace would replace it")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there; a name that the system refuses fails when it is opened
        return False


@contextmanager
def tracing(trace_file: Path | None, *, title: str, vantage_point: VantagePoint) -> Iterator[Trace | None]:
    """Give a trace into `trace_file`, complete when the block is left, however it is left; None without a file.

    To be entered when signals already cancel what is traced. Raises TraceError.
    """
    if trace_file is None:
        yield None
        return
    now, wall_clock = time.monotonic(), datetime.now(UTC)
    with TraceWriter(trace_file, now=now, title=title, vantage_point=vantage_point, wall_clock=wall_clock) as trace:
        yield trace
