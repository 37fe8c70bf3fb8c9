"""Two processes, one at each end: a server that reports its port, a client that connects to it, and their results.

Both print the events of scripts/harness/events.py. The server's first event is `listening {port}`; the last event of
each has its figures, in a format that the caller knows.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from scripts.harness.errors import BenchError
from scripts.harness.process import ManagedProcess, ProcessSet
from scripts.harness.veth_pair import RECEIVER, SENDER

LISTEN_BOUND_S: Final = 20.0
"""Timeout to start an interpreter and make its data, on a busy machine."""
EXIT_BOUND_S: Final = 15.0
"""Timeout from the last event of one end to that of the other."""
_TICK_S: Final = 0.1

Event = dict[str, Any]
Cores = tuple[Sequence[str], Sequence[str]]
"""What precedes the commands of client and server, to choose where they run."""
ANY_CORES: Final[Cores] = ((), ())


class Pair(Protocol):
    """Two hosts that are up: a veth pair's, or those of a larger lab."""

    @property
    def receiver(self) -> str:
        """The receiving end's address."""

    def command(self, node: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` at one end, SENDER or RECEIVER."""


def python(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of this project."""
    return [sys.executable, "-m", module, *arguments]


def own_cores() -> Cores:
    """Return what precedes two commands, so that each runs on a core of its own; nothing where there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return ANY_CORES
    return ["taskset", "--cpu-list", str(cores[0])], ["taskset", "--cpu-list", str(cores[1])]


def one_core() -> Cores:
    """Return what precedes two commands, so that both run on the same core.

    Then the other end's work is the time that one waits, no core goes idle between them, and none has to be woken: the
    processor time of each is that of its own work, also on a busy machine.
    """
    core = ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0)))]
    return core, core


def run_both(
    pair: Pair, *, server: Sequence[str], client: Callable[[str, int], Sequence[str]], bound_s: float
) -> tuple[Event, Event]:
    """Run both; return the server's last event and the client's.

    `client` is called with the server's address and port. Raises BenchError with the processes' errors if one of them
    fails, or if they have not both ended within `bound_s` of the client's start.
    """
    with running(pair, server=server, client=client) as ended:
        return ended(bound_s)


@contextmanager
def running(
    pair: Pair, *, server: Sequence[str], client: Callable[[str, int], Sequence[str]]
) -> Iterator[Callable[[float], tuple[Event, Event]]]:
    """Run both during the block; yields a function that waits for their ends, as `run_both` does."""
    with ProcessSet() as pipes:
        server_process = pipes.add(ManagedProcess.start("server", command=pair.command(RECEIVER, server)))
        port = _port(pipes, server_process)
        command = pair.command(SENDER, client(pair.receiver, port))
        client_process = pipes.add(ManagedProcess.start("client", command=command))

        def ended(bound_s: float) -> tuple[Event, Event]:
            _wait(pipes, (server_process, client_process), bound_s=bound_s)
            for process in (server_process, client_process):
                pipes.stop(process)  # both have ended, maybe before anything waited for their output
            return _final_event(server_process), _final_event(client_process)

        yield ended


def _port(pipes: ProcessSet, server: ManagedProcess) -> int:
    give_up_at = time.monotonic() + LISTEN_BOUND_S
    while time.monotonic() < give_up_at and server.exit_status is None:
        pipes.wait(until=time.monotonic() + _TICK_S)
        for event in server.events:
            if event["event"] == "listening":
                return int(event["port"])
    server.stop()
    raise BenchError(f"the server did not listen within {LISTEN_BOUND_S:g} s: {server.last_error or 'no output'}")


def _wait(pipes: ProcessSet, children: Sequence[ManagedProcess], *, bound_s: float) -> None:
    give_up_at = time.monotonic() + bound_s
    while not all(ended := [child.exit_status is not None for child in children]):
        if time.monotonic() >= give_up_at:
            late = ", ".join(child.name for child, done in zip(children, ended, strict=True) if not done)
            reason = " ".join(filter(None, (child.last_error for child in children)))
            raise BenchError(f"not done within {bound_s:g} s: {late}" + (f" ({reason})" if reason else ""))
        if any(ended):
            give_up_at = min(give_up_at, time.monotonic() + EXIT_BOUND_S)
        pipes.wait(until=time.monotonic() + _TICK_S)


def _final_event(child: ManagedProcess) -> Event:
    if child.exit_status != 0 or not child.events:
        raise BenchError(f"the {child.name} ended with status {child.exit_status}: {child.last_error}")
    return child.events[-1]
