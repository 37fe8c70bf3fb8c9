"""What every command has that opens a peer: its source ports, its key and encryption, busy polling, a trace."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from netns.base.options import with_options
from srd.cli.security import SecurityOptions, security_options
from srd.proto.config import MAX_PATHS, ProtocolConfig
from srd.proto.trace import Trace
from srd.qlog.writer import TraceWriter, VantagePoint, is_no_trace

_paths_option: Final = click.option(
    "--paths",
    type=click.IntRange(1, MAX_PATHS),
    default=ProtocolConfig().paths,
    show_default=True,
    help="Number of source ports to spray packets over.",
)
_busy_poll_option: Final = click.option(
    "--busy-poll",
    is_flag=True,
    help="Poll the sockets continuously instead of sleeping: uses a whole CPU, shortens round trips.",
)
_trace_option: Final = click.option(
    "--trace",
    "trace_file",
    type=click.Path(path_type=Path),
    help="Write a qlog trace (JSON-SEQ) of every burst, ACK and loss to this file; srd trace summarises it.",
)


peer_options: Final = with_options(_paths_option, security_options, _busy_poll_option, _trace_option)
"""What both ends have, of every command."""


@dataclass(frozen=True, slots=True)
class PeerOptions(SecurityOptions):
    """What `peer_options` adds."""

    paths: int
    busy_poll: bool
    trace_file: Path | None

    def check_trace(self, *, inputs: Sequence[Path] = ()) -> None:
        """Refuse a trace file that is a directory, one of `inputs`, or no trace. Raises click.UsageError."""
        file = self.trace_file
        if file is None:
            return
        if os.path.isdir(file):  # noqa: PTH112 - False, too, for a name that the system refuses
            raise click.UsageError(f"--trace {file}: is a directory; give a file in it")
        for path in inputs:
            if _same(file, path):
                raise click.UsageError(f"--trace {file}: is a file to send; the trace would replace it")
        with suppress(OSError, ValueError):  # the writer names what is wrong
            if is_no_trace(file):
                raise click.UsageError(f"--trace {file}: exists, and is no trace; give the name of a new file")

    @contextmanager
    def tracing(self, *, title: str, vantage_point: VantagePoint) -> Iterator[Trace | None]:
        """Yield a trace that writes to the file and is closed when the block is left; None without a file.

        Enter it when signal handlers are installed, so that a signal leaves the block. Raises TraceError.
        """
        if self.trace_file is None:
            yield None
            return
        now, wall_clock = time.monotonic(), datetime.now(UTC)
        with TraceWriter(
            self.trace_file, now=now, title=title, vantage_point=vantage_point, wall_clock=wall_clock
        ) as trace:
            yield trace


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist; a name that the system refuses fails when it is opened
        return False
