"""Processes that this one starts, watches and ends: what they print comes a line at a time, and none is left behind.

    class Rank(Child): ...
    with Children(print) as children:
        rank = children.spawn(command, become=partial(Rank, number=0))
        while rank.status is None:
            children.turn(until=give_up_at)

Theory of operation. Each child is a session of its own: a Ctrl-C at the terminal reaches this process alone, which ends
them in order. A child is watched through a pidfd, so that its exit is noticed before it is reaped: until then its
process id, which is also its process group, cannot be reused, and the processes that it left running are ended with it.
The death of this process, also by SIGKILL, ends them, too (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, Literal, Self, TypeVar

from netns.errors import BackendError
from netns.programs import ending_with_us
from netns.signals import undisturbed

GRACE_S: Final = 2.0
"""From SIGTERM to SIGKILL, and from the end of a process to that of its pipes, which a daemon of its may keep open."""
_READ_BYTES: Final = 1 << 16
_MAX_LINE_BYTES: Final = 1 << 20

Output = Literal["stdout", "stderr"]


@dataclass(eq=False, slots=True)
class Child:
    """One process."""

    popen: subprocess.Popen[bytes]
    status: int | None = None
    """Its exit status, negative for a signal; None while it runs."""
    last_error: str = ""
    """Its last line on stderr."""
    open_pipes: int = 2
    partial: dict[Output, bytes] = field(default_factory=lambda: {"stdout": b"", "stderr": b""})

    def write(self, data: bytes) -> None:
        """Write to its stdin; nothing if it has ended, which its status says."""
        if self.popen.stdin is not None and not self.popen.stdin.closed:
            with suppress(BrokenPipeError):
                self.popen.stdin.write(data)

    def end_input(self) -> None:
        """Close its stdin."""
        if self.popen.stdin is not None:
            self.popen.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Signal it and all processes of its group, if it runs."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.killpg(self.popen.pid, number)


C = TypeVar("C", bound=Child)


class Children(Generic[C]):
    """A context manager that ends them."""

    def __init__(self, on_line: Callable[[C, Output, str], None], *, grace_s: float = GRACE_S) -> None:
        """`on_line` is called with each line that a child prints; `grace_s` is from SIGTERM to SIGKILL, 0: at once."""
        self._tell_line = on_line
        self._grace_s = grace_s
        self._selector = selectors.DefaultSelector()
        self._all = list[C]()

    def spawn(
        self,
        command: Sequence[str],
        *,
        become: Callable[[subprocess.Popen[bytes]], C],
        env: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> C:
        """Start a process with three pipes, in this directory or ours. Raises BackendError if that fails."""
        with undisturbed():
            try:
                popen = subprocess.Popen(
                    ending_with_us(command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    env=env,
                    cwd=directory,
                    start_new_session=True,
                )
            except OSError as error:
                raise BackendError(f"{command[0]}: {error.strerror}") from None
            child = become(popen)
            self._all.append(child)
            self._selector.register(os.pidfd_open(popen.pid), selectors.EVENT_READ, (child, None))
            for stream in ("stdout", "stderr"):
                pipe = getattr(popen, stream)
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ, (child, stream))
        return child

    def turn(self, *, until: float | None = None) -> None:
        """Wait until one prints or ends, at the latest until then (monotonic); take note of it."""
        timeout_s = None if until is None else max(0.0, until - time.monotonic())
        for key, _ in self._selector.select(timeout_s):
            child, stream = key.data
            if stream is not None:
                self._read(child, stream)
            else:
                self._reap(child, pidfd=key.fd)

    def turn_while(self, condition: Callable[[], bool], *, within_s: float) -> None:
        """Take turns while the condition holds, at most so long."""
        give_up_at = time.monotonic() + within_s
        while condition() and time.monotonic() < give_up_at:
            self.turn(until=give_up_at)

    def end(self) -> None:
        """End all that still run, SIGTERM first if there is a grace, and read what is left of their output."""
        for number in (signal.SIGTERM, signal.SIGKILL) if self._grace_s else (signal.SIGKILL,):
            for child in self._all:
                child.signal(number)
            self.turn_while(lambda: any(child.status is None for child in self._all), within_s=self._grace_s or GRACE_S)
        self.read_rest()

    def read_rest(self) -> None:
        """Read the pipes to their ends, for GRACE_S at most."""
        self.turn_while(lambda: any(child.open_pipes for child in self._all), within_s=GRACE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with undisturbed():
            self.end()
            self._selector.close()
            for child in self._all:
                for pipe in (child.popen.stdin, child.popen.stdout, child.popen.stderr):
                    if pipe is not None:
                        pipe.close()

    def _reap(self, child: C, *, pidfd: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        child.signal(signal.SIGKILL)  # what it left running; its group's id is not reused until it is reaped
        child.status = child.popen.wait()
        child.end_input()

    def _read(self, child: C, stream: Output) -> None:
        pipe = getattr(child.popen, stream)
        try:
            data = os.read(pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        *lines, rest = (child.partial[stream] + data).split(b"\n")
        if rest and (not data or len(rest) > _MAX_LINE_BYTES):
            lines, rest = [*lines, rest], b""
        child.partial[stream] = rest
        for line in (each.decode(errors="replace").rstrip("\r") for each in lines):
            if stream == "stderr" and line.strip():
                child.last_error = line.strip()
            self._tell_line(child, stream, line)
        if not data:
            self._selector.unregister(pipe)
            pipe.close()
            child.open_pipes -= 1
