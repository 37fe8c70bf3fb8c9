"""Start a job's ranks as processes, each in the namespace of its host in the placement.

    with Launcher.start(lab, hosts=placement.hosts, command=job.command, env=job.env) as ranks:
        ranks.wait(on_line=lambda rank, stream, line: print(rank, line))
        print(ranks.iterations_s)

A rank is a child of the launcher (netns/children.py). When a rank fails, or the launcher leaves the `with` block, all
others are ended, SIGTERM first.

Ranks get their identity from their environment, by the names that torchrun uses: RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; and all addresses in order of rank, separated by commas, as RANK_HOSTS, and
the name of the switch of the rank's own host as RANK_LEAF.
PATH begins with the directory of the launcher's own interpreter, so that `python3` and `srd` in a job's command are
those that are installed beside it.

Ranks may report durations, as a JSON object on a line of stdout:

    {"event": "iteration", "iteration": 0, "seconds": 1.25}

The duration of an iteration is that of its slowest rank.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from netns.backends.relay.tap import identity_of
from netns.base.output import event_of
from netns.children import GRACE_S, Child, Children, Output
from netns.errors import BackendError, RankError
from netns.lab.lab import Lab
from netns.processes import network_of

MASTER_PORT: Final = 29500  # torchrun's default; each rank has an address, so all may use it
NAMESPACE_POLL_S: Final = 0.002  # interval of checks until a rank has entered a namespace
_GATE: Final = ("sh", "-c", 'read -r _ && exec "$@" < /dev/null', "sh")
"""Delays a rank's command until its stdin has a line, so that the namespace of a short command can be read. Without the
line, after an error or the launcher's exit, the command does not start."""

OnLine = Callable[[int, Output, str], None]
"""Called with rank, stream and line of the ranks' output, except for iterations."""


@dataclass(eq=False, slots=True, kw_only=True)
class Rank(Child):
    """One process."""

    number: int
    host: str
    """The host where it is to run."""
    ran_in: str | None = None
    """The lab's node whose namespace it is in, according to the kernel; None: not yet seen in any."""

    def __str__(self) -> str:
        return f"rank {self.number} on {self.host}"

    @property
    def failure(self) -> str:
        """The description of its failure."""
        status = self.status or 0
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"failed with status {status}"
        return f"{self} {how}" + (f": {self.last_error}" if self.last_error else "")


class Launcher(Children[Rank]):
    """All ranks of a job. Created by `start`; a context manager that ends them."""

    def __init__(self, lab: Lab) -> None:
        self._nodes = {identity_of(lab.netns(node)): node for node in lab.topology.nodes}
        super().__init__(self._on_line)
        self._tell: OnLine = _discard_line
        self._seconds: dict[int, list[float]] = {}
        self.ranks: list[Rank] = []

    @classmethod
    def start(
        cls, lab: Lab, *, hosts: Sequence[str], command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> Self:
        """Start `command` on each of `hosts`, in order of rank. On failure raises BackendError, and no rank runs."""
        inherited = os.environ | {"PATH": _path()} | dict(env or {})
        if shutil.which(command[0], path=inherited["PATH"]) is None:
            raise BackendError(f"{command[0]}: no such command")
        made = cls(lab)
        addresses = [lab.address(host) for host in hosts]
        try:
            for number, host in enumerate(hosts):
                rank = made.spawn(
                    lab.command(host, [*_GATE, *command]),
                    become=partial(Rank, number=number, host=host),
                    env=inherited | _environment(number, addresses) | {"RANK_LEAF": lab.topology.switch_of(host)},
                )
                made.ranks.append(rank)
            made._open_gates()
        except BaseException:
            made.end()
            raise
        return made

    def wait(self, *, on_line: OnLine, timeout_s: float | None = None) -> None:
        """Wait until all ranks have exited with 0. On a failure or timeout ends all of them, and raises RankError."""
        self._tell = on_line
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while any(rank.status is None for rank in self.ranks):
                if give_up_at is not None and time.monotonic() >= give_up_at:
                    running = ", ".join(str(rank) for rank in self.ranks if rank.status is None)
                    self.end()
                    raise RankError(f"not done after {timeout_s:g} s: {running}")
                self.turn(until=give_up_at)
                failed = next((rank for rank in self.ranks if rank.status), None)
                if failed is not None:
                    self.end()
                    raise RankError(failed.failure)
            self.read_rest()
        finally:
            self._tell = _discard_line

    @property
    def iterations_s(self) -> list[float]:
        """The duration of each iteration on its slowest rank, for iterations that every rank reported."""
        return [max(reported) for _, reported in sorted(self._seconds.items()) if len(reported) == len(self.ranks)]

    def _open_gates(self) -> None:
        """Find the namespace of each rank, then start its command; at the latest after GRACE_S."""
        give_up_at = time.monotonic() + GRACE_S
        waiting = list(self.ranks)
        while waiting and time.monotonic() < give_up_at:
            for rank in waiting:
                network = network_of(rank.popen.pid)
                rank.ran_in = network and self._nodes.get(network)
            waiting = [rank for rank in waiting if rank.ran_in is None and not _has_exited(rank.popen.pid)]
            if waiting:
                time.sleep(NAMESPACE_POLL_S)
        for rank in self.ranks:
            rank.write(b"\n")
            rank.end_input()

    def _on_line(self, rank: Rank, stream: Output, line: str) -> None:
        reported = _iteration(line) if stream == "stdout" else None
        if reported is None:
            self._tell(rank.number, stream, line)
        else:
            iteration, seconds = reported
            self._seconds.setdefault(iteration, []).append(seconds)


def _path() -> str:
    """Return a PATH that begins with the programs that are installed beside this interpreter."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def _environment(number: int, addresses: Sequence[str]) -> dict[str, str]:
    return {
        "RANK": str(number),
        "WORLD_SIZE": str(len(addresses)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(MASTER_PORT),
        "RANK_HOSTS": ",".join(addresses),
    }


def _has_exited(pid: int) -> bool:
    """Whether a child has exited, without reaping it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _iteration(line: str) -> tuple[int, float] | None:
    """Return number and seconds of the iteration that a line reports; None for another line."""
    event = event_of(line) or {}
    try:
        return (int(event["iteration"]), float(event["seconds"])) if event.get("event") == "iteration" else None
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def _discard_line(_rank: int, _stream: Output, _line: str) -> None:
    """Ignore output after the end."""
