"""What every command has that opens a peer: its source ports, its key and encryption, busy polling, a trace."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from netns.base.options import with_options
from srd.cli.security import SecurityOptions, security_options
from srd.cli.tracing import check_trace_file, trace_option, tracing
from srd.proto.config import MAX_PATHS, ProtocolConfig
from srd.proto.trace import Trace
from srd.qlog.writer import VantagePoint

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


peer_options: Final = with_options(_paths_option, security_options, _busy_poll_option, trace_option)
"""What both ends have, of every command."""


@dataclass(frozen=True, slots=True)
class PeerOptions(SecurityOptions):
    """What `peer_options` adds."""

    paths: int
    busy_poll: bool
    trace_file: Path | None

    def check_trace(self, *, inputs: Sequence[Path] = ()) -> None:
        """Refuse a trace file that would replace something else. Raises click.UsageError."""
        check_trace_file(self.trace_file, inputs=list(inputs))

    def tracing(self, *, title: str, vantage_point: VantagePoint) -> AbstractContextManager[Trace | None]:
        """Write a trace in a block, if it is asked for. Raises TraceError."""
        return tracing(self.trace_file, title=title, vantage_point=vantage_point)
