"""Child processes that print events: started, commanded, read, and ended by process id.

Each runs in a session of its own, so that a Ctrl-C at the terminal reaches only this process, which ends them in order.
Each dies with this process (netns/programs.py), so that even a kill -9 leaves no daemon.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from netns.programs import ending_with_us
from scripts.harness.errors import BenchError
from scripts.harness.events import parse

Event = dict[str, Any]
ROOT: Final = Path(__file__).resolve().parent.parent.parent
EVENT_BOUND_S: Final = 120.0
_GRACE_S: Final = 2.0
_TICK_S: Final = 0.1
_READ_BYTES: Final = 1 << 16
_TAIL_CHARACTERS: Final = 1 << 20
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True, eq=False)
class Process:
    """One running process with the events that it printed so far."""

    name: str
    """Its name in messages."""

    process: subprocess.Popen[bytes]
    """The process itself; its group is its own."""

    events: list[Event] = field(default_factory=list)
    """Its events so far."""

    errors: str = ""
    """The last of its output on stderr so far."""

    pending: list[Event] = field(default_factory=list)
    """Those that `ProcessGroup.event` has not returned."""

    _partial: bytes = b""

    @classmethod
    def start(cls, name: str, *, command: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        """Start `command`, with the project's root as its directory so that its modules are found."""
        return cls(
            name=name,
            process=subprocess.Popen(
                ending_with_us(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=ROOT,
                env=env,
                start_new_session=True,
            ),
        )

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    @property
    def last_error(self) -> str:
        """The last line of its stderr; empty if there is none."""
        lines = self.errors.strip().splitlines()
        return lines[-1] if lines else ""

    @property
    def failure(self) -> BenchError:
        """What to raise of a process that has ended."""
        return BenchError(f"the {self.name} ended with status {self.exit_status}: {self.last_error or 'no output'}")

    @property
    def cpu_s(self) -> float:
        """User and system time so far. Raises BenchError if it has ended."""
        try:
            return processor_s(self.process.pid)
        except OSError:
            raise self.failure from None

    @property
    def anonymous_bytes(self) -> int:
        """Its private memory, without regions, which are memfds."""
        return anonymous_bytes(self.process.pid)

    def command(self, line: str) -> None:
        """Send it a line; ignored if it has ended."""
        assert self.process.stdin is not None  # noqa: S101 - Popen made the pipe
        with suppress(BrokenPipeError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def stop(self) -> None:
        """End it, by SIGKILL if necessary, and collect its remaining output."""
        if self.exit_status is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            out, err = self.process.communicate(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
        self.read_stdout(out)
        self.read_stderr(err)

    def read_stdout(self, data: bytes) -> None:
        """Handle its output on stdout."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        found = [event for line in lines if (event := parse(line.decode(errors="replace"))) is not None]
        self.events += found
        self.pending += found

    def read_stderr(self, data: bytes) -> None:
        """Handle its output on stderr."""
        self.errors = (self.errors + data.decode(errors="replace"))[-_TAIL_CHARACTERS:]


class ProcessGroup:
    """Several processes, whose pipes are polled together."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._children: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all processes, the last one first."""
        self._selector.close()
        for child in reversed(self._children):
            child.stop()

    def start(self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> Process:
        """Start a process; it is stopped when the block ends."""
        return self.add(Process.start(name, command=command, env=env))

    def add(self, child: Process) -> Process:
        """Read the output of `child`; it is stopped when the block ends."""
        self._children.append(child)
        for stream in (child.process.stdout, child.process.stderr):
            assert stream is not None  # noqa: S101  Popen made both pipes
            self._selector.register(stream, selectors.EVENT_READ, child)
        return child

    def stop(self, child: Process) -> None:
        """End one of the processes, or collect what one that has ended has printed."""
        if child not in self._children:
            return
        for stream in (child.process.stdout, child.process.stderr):
            if stream is not None and stream in self._selector.get_map():
                self._selector.unregister(stream)
        self._children.remove(child)
        child.stop()

    def wait(self, *, until: float) -> None:
        """Wait for output of any process until `until` (monotonic), and handle it."""
        for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
            child: Process = key.data
            stream = key.fileobj
            data = os.read(key.fd, _READ_BYTES)
            if not data:
                self._selector.unregister(stream)
            elif stream is child.process.stdout:
                child.read_stdout(data)
            else:
                child.read_stderr(data)

    def event(self, child: Process, kind: str, *, bound_s: float = EVENT_BOUND_S, **fields: str) -> Event:
        """Return the first event of a kind, with these fields, that was not returned yet.

        Raises BenchError if the process ends before, or none comes in time.
        """
        give_up_at = time.monotonic() + bound_s
        while True:
            has_ended = child.exit_status is not None
            if has_ended:
                self.stop(child)
            for event in child.pending:
                if event["event"] == kind and fields.items() <= event.items():
                    child.pending.remove(event)
                    return event
            if has_ended:
                raise child.failure
            if time.monotonic() > give_up_at:
                raise BenchError(
                    f"the {child.name} sent no {kind!r} within {bound_s:g} s: {child.last_error or 'no output'}"
                )
            self.wait(until=time.monotonic() + _TICK_S)

    def said(self, child: Process, text: str, *, bound_s: float = EVENT_BOUND_S) -> None:
        """Wait until a process has printed a text on stderr. Raises BenchError if it ends before, or is late."""
        give_up_at = time.monotonic() + bound_s
        while text not in child.errors:
            if child.exit_status is not None:
                self.stop(child)
                raise child.failure
            if time.monotonic() > give_up_at:
                raise BenchError(f"the {child.name} did not print {text!r} within {bound_s:g} s")
            self.wait(until=time.monotonic() + _TICK_S)

    def request(self, child: Process, line: str, kind: str, *, bound_s: float = EVENT_BOUND_S) -> Event:
        """Send a line; return the event of the reply."""
        child.command(line)
        return self.event(child, kind, bound_s=bound_s)

    def end(self, child: Process, *, bound_s: float) -> None:
        """Wait until a process has ended, and have all its output. Raises BenchError if it fails, or in time."""
        give_up_at = time.monotonic() + bound_s
        while child.exit_status is None:
            if time.monotonic() >= give_up_at:
                raise BenchError(
                    f"the {child.name} did not end within {bound_s:g} s: {child.last_error or 'no output'}"
                )
            self.wait(until=time.monotonic() + _TICK_S)
        self.stop(child)  # it has ended, maybe before anything waited for its output
        if child.exit_status:
            raise child.failure

    def ends(self, children: Sequence[Process], *, bound_s: float, after_first_s: float = EVENT_BOUND_S) -> list[Event]:
        """Wait until all have ended; return the last event of each.

        Raises BenchError if one fails, or has not ended in time, also within `after_first_s` of the first's end.
        """
        give_up_at = time.monotonic() + bound_s
        while not all(ended := [child.exit_status is not None for child in children]):
            if time.monotonic() >= give_up_at:
                late = ", ".join(child.name for child, done in zip(children, ended, strict=True) if not done)
                reason = " ".join(filter(None, (child.last_error for child in children)))
                raise BenchError(f"not done within {bound_s:g} s: {late}" + (f" ({reason})" if reason else ""))
            if any(ended):
                give_up_at = min(give_up_at, time.monotonic() + after_first_s)
            self.wait(until=time.monotonic() + _TICK_S)
        for child in children:
            self.stop(child)  # it has ended, maybe before anything waited for its output
        for child in children:
            if child.exit_status != 0 or not child.events:
                raise child.failure
        return [child.events[-1] for child in children]


def processor_s(pid: int) -> float:
    """Return the user and system time of a process so far. Raises OSError if it has ended."""
    values = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / _TICKS_PER_S


def anonymous_bytes(pid: int) -> int:
    """Return the anonymous memory of a process, without regions; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    return 0
