"""Start a job's ranks as processes, each in the namespace of its host in the placement.

    with Launcher.start(lab, hosts=placement.hosts, command=job.command, env=job.env) as ranks:
        ranks.wait(on_line=lambda rank, stream, line: print(rank, line))
        print(ranks.iterations_s)

Theory of operation. Each rank is a session of its own: a Ctrl-C at the terminal reaches the launcher alone, which ends
the ranks in order. A rank is watched through a pidfd, so that its exit is noticed before it is reaped: until then its
process id, which is also its process group, cannot be reused, and the processes that it left running are ended with it.
When a rank fails, or the launcher leaves the `with` block, all others are ended, SIGTERM first. The launcher's own
death, also by SIGKILL, ends them, too (PR_SET_PDEATHSIG).

Ranks get their identity from their environment, by the names that torchrun uses: RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; and all addresses in order of rank, separated by commas, as RANK_HOSTS.
PATH begins with the directory of the launcher's own interpreter, so that `python3` and `srd` in a job's command are
those that are installed beside it.

Ranks may report durations, as a JSON object on a line of stdout:

    {"event": "iteration", "iteration": 0, "seconds": 1.25}

The duration of an iteration is that of its slowest rank.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from netns.backends.relay.tap import identity_of
from netns.errors import BackendError, RankError
from netns.lab.lab import Lab
from netns.programs import ending_with_us

MASTER_PORT: Final = 29500  # torchrun's default; each rank has an address, so all may use it
GRACE_S: Final = 2.0
NAMESPACE_POLL_S: Final = 0.002  # interval of checks until a rank has entered a namespace
_GATE: Final = ("sh", "-c", 'read -r _ && exec "$@" < /dev/null', "sh")
"""Delays a rank's command until its stdin has a line, so that the namespace of a short command can be read. Without the
line, after an error or the launcher's exit, the command does not start."""
READ_BYTES: Final = 1 << 16
MAX_LINE_BYTES: Final = 1 << 20

Stream = Literal["stdout", "stderr"]
OnLine = Callable[[int, Stream, str], None]
"""Called with rank, stream and line of the ranks' output, except for iterations."""


@dataclass(slots=True)
class Rank:
    """One process."""

    number: int
    host: str
    """The host where it is to run."""

    process: subprocess.Popen[bytes]
    ran_in: str | None = None
    """The lab's node whose namespace it is in, according to the kernel; None: not yet seen in any."""

    status: int | None = None
    """Its exit status, negative for a signal; None while it runs."""

    last_error: str = ""
    """Its last line on stderr."""

    open_pipes: int = 2

    partial: dict[Stream, bytes] = field(default_factory=lambda: {"stdout": b"", "stderr": b""})

    def __str__(self) -> str:
        return f"rank {self.number} on {self.host}"

    @property
    def failure(self) -> str:
        """The description of its failure."""
        status = self.status or 0
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"failed with status {status}"
        return f"{self} {how}" + (f": {self.last_error}" if self.last_error else "")


class Launcher:
    """All ranks of a job. Created by `start`; a context manager that ends them."""

    def __init__(self, lab: Lab) -> None:
        nodes = {node: identity_of(lab.netns(node)) for node in lab.topology.nodes}
        self._nodes = {identity: node for node, identity in nodes.items() if identity is not None}
        self._selector = selectors.DefaultSelector()
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
                own = inherited | _environment(number, addresses)
                made._start(Rank(number, host, _spawn(lab.command(host, [*_GATE, *command]), env=own)))
            made._open_gates()
        except BaseException:
            made.end()
            raise
        return made

    def wait(self, *, on_line: OnLine, timeout_s: float | None = None) -> None:
        """Wait until all ranks have exited with 0. On a failure or timeout ends all of them, and raises RankError."""
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        while any(rank.status is None for rank in self.ranks):
            left = None if give_up_at is None else give_up_at - time.monotonic()
            if left is not None and left <= 0:
                running = ", ".join(str(rank) for rank in self.ranks if rank.status is None)
                self.end(on_line=on_line)
                raise RankError(f"not done after {timeout_s:g} s: {running}")
            self._turn(on_line, timeout_s=left)
            failed = next((rank for rank in self.ranks if rank.status), None)
            if failed is not None:
                self.end(on_line=on_line)
                raise RankError(failed.failure)
        self._read_rest(on_line)

    @property
    def iterations_s(self) -> list[float]:
        """The duration of each iteration on its slowest rank, for iterations that every rank reported."""
        return [max(reported) for _, reported in sorted(self._seconds.items()) if len(reported) == len(self.ranks)]

    def end(self, *, on_line: OnLine | None = None) -> None:
        """End all ranks that still run, and collect their remaining output."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for rank in self.ranks:
                if rank.status is None:
                    _signal_group(rank, number)
            give_up_at = time.monotonic() + GRACE_S
            while any(rank.status is None for rank in self.ranks) and (left := give_up_at - time.monotonic()) > 0:
                self._turn(on_line or _discard_line, timeout_s=left)
        self._read_rest(on_line or _discard_line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()
        self._selector.close()
        for rank in self.ranks:
            for pipe in (rank.process.stdout, rank.process.stderr):
                if pipe is not None:
                    pipe.close()

    # -- one rank -----------------------------------------------------------------------------------------------------

    def _start(self, rank: Rank) -> None:
        self.ranks.append(rank)
        self._selector.register(os.pidfd_open(rank.process.pid), selectors.EVENT_READ, (rank, None))
        for stream in ("stdout", "stderr"):
            pipe = getattr(rank.process, stream)
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, (rank, stream))

    def _open_gates(self) -> None:
        """Find the namespace of each rank, then start its command; at the latest after GRACE_S."""
        give_up_at = time.monotonic() + GRACE_S
        waiting = list(self.ranks)
        while waiting and time.monotonic() < give_up_at:
            for rank in waiting:
                rank.ran_in = self._node_of(rank.process.pid)
            waiting = [rank for rank in waiting if rank.ran_in is None and not _has_exited(rank.process.pid)]
            if waiting:
                time.sleep(NAMESPACE_POLL_S)
        for rank in self.ranks:
            if rank.process.stdin is not None:
                with suppress(BrokenPipeError):
                    rank.process.stdin.write(b"\n")
                rank.process.stdin.close()

    def _node_of(self, pid: int) -> str | None:
        """Return the node whose namespace a process is in; None if it is in none of the lab's or has ended."""
        network = _network_of(pid)
        return None if network is None else self._nodes.get(network)

    def _turn(self, on_line: OnLine, *, timeout_s: float | None) -> None:
        """Wait for events, and handle them."""
        for key, _ in self._selector.select(timeout_s):
            rank, stream = key.data
            if stream is not None:
                self._read(rank, stream, on_line)
            else:
                self._ended(rank, pidfd=key.fd)

    def _ended(self, rank: Rank, *, pidfd: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _signal_group(rank, signal.SIGKILL)  # what it left running; its group's id is not reused until it is reaped
        rank.status = rank.process.wait()
        if rank.process.stdin is not None:
            rank.process.stdin.close()

    def _read(self, rank: Rank, stream: Stream, on_line: OnLine) -> None:
        pipe = getattr(rank.process, stream)
        try:
            data = os.read(pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        *lines, rest = (rank.partial[stream] + data).split(b"\n")
        if rest and (not data or len(rest) > MAX_LINE_BYTES):
            lines, rest = [*lines, rest], b""
        rank.partial[stream] = rest
        for line in lines:
            self._on_line(rank, stream, line.decode(errors="replace").rstrip("\r"), on_line)
        if not data:
            self._selector.unregister(pipe)
            pipe.close()
            rank.open_pipes -= 1

    def _read_rest(self, on_line: OnLine) -> None:
        """Read the pipes of ranks that have exited; with a limit, because a daemon of theirs may keep them open."""
        give_up_at = time.monotonic() + GRACE_S
        while any(rank.open_pipes for rank in self.ranks) and (left := give_up_at - time.monotonic()) > 0:
            self._turn(on_line, timeout_s=left)

    def _on_line(self, rank: Rank, stream: Stream, line: str, on_line: OnLine) -> None:
        if stream == "stderr" and line.strip():
            rank.last_error = line.strip()
        reported = _iteration(line) if stream == "stdout" else None
        if reported is None:
            on_line(rank.number, stream, line)
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


def _spawn(command: Sequence[str], *, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own that ends with this process."""
    try:
        return subprocess.Popen(
            ending_with_us(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        raise BackendError(f"{command[0]}: {error.strerror}") from None


def _has_exited(pid: int) -> bool:
    """Whether a child has exited, without reaping it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(rank: Rank, number: signal.Signals) -> None:
    """Signal a rank that is not yet reaped, and all processes in its session's group."""
    with suppress(ProcessLookupError):
        os.killpg(rank.process.pid, number)


def _network_of(pid: int) -> tuple[int, int] | None:
    """Return the network namespace of a process, according to the kernel; None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/ns/net").stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _iteration(line: str) -> tuple[int, float] | None:
    """Return number and seconds of the iteration that a line reports; None for another line."""
    try:
        event: Any = json.loads(line)
        if event["event"] == "iteration":
            return int(event["iteration"]), float(event["seconds"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    return None


def _discard_line(_rank: int, _stream: Stream, _line: str) -> None:
    """Ignore output after the end."""
