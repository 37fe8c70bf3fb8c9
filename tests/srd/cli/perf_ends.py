"""`srd perf server` as a process, and two machines to measure between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from netns.topology.model import Link, Switch, Topology
from tests.srd.cli.processes import Process, command

HOST = "127.0.0.1"
TWO_MACHINES = Topology(
    name="perf",
    hosts=("near", "far"),
    switches=(Switch("between", "leaf"),),
    links=(Link("near", "between"), Link("far", "between")),
    mtu=9000,
)
"""Two machines and a link; its addresses are of two networks at each end, so that MPTCP could use both."""


@contextmanager
def server(*options: str, host: str = HOST, within: Sequence[str] = ()) -> Iterator[tuple[Process, str]]:
    """A server at any free port; gives it and the port."""
    argv = command("perf", "server", "--plain", "--bind", host, "--port", "0", *options)
    with Process([*within, *argv]) as process:
        yield process, process.line("listening on", of=process.stdout).rpartition(":")[2]
