"""Child processes that print events: started, read, and ended by process id.

Each runs in a session of its own, so that a Ctrl-C at the terminal reaches only this process, which ends them in order.
Each dies with this process (netns/programs.py), so that even a kill -9 leaves no daemon.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from netns.programs import ending_with_us
from scripts.harness.events import parse

_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_GRACE_S: Final = 2.0
_READ_BYTES: Final = 1 << 16
_TAIL_CHARACTERS: Final = 4000


@dataclass(slots=True)
class ManagedProcess:
    """One running process with the events that it printed so far."""

    name: str
    """Its name in messages."""

    process: subprocess.Popen[bytes]
    """The process itself; its group is its own."""

    events: list[dict[str, Any]] = field(default_factory=list)
    """Its events so far."""

    _errors: str = ""
    _partial: bytes = b""
    _taken: int = 0

    @classmethod
    def start(cls, name: str, *, command: Sequence[str]) -> ManagedProcess:
        """Start `command`, with the project's root as its directory so that its modules are found."""
        return cls(
            name=name,
            process=subprocess.Popen(
                ending_with_us(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=_ROOT,
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
        lines = self._errors.strip().splitlines()
        return lines[-1] if lines else ""

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

    def fresh(self) -> list[dict[str, Any]]:
        """Return the events since the last call."""
        fresh = self.events[self._taken :]
        self._taken = len(self.events)
        return fresh

    def read_stdout(self, data: bytes) -> None:
        """Handle its output on stdout."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        events = (parse(line.decode(errors="replace")) for line in lines)
        self.events += [event for event in events if event is not None]

    def read_stderr(self, data: bytes) -> None:
        """Handle its output on stderr."""
        self._errors = (self._errors + data.decode(errors="replace"))[-_TAIL_CHARACTERS:]


class ProcessSet:
    """The pipes of several processes, polled together."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._children: list[ManagedProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all processes, the last one first."""
        self._selector.close()
        for child in reversed(self._children):
            child.stop()

    def add(self, child: ManagedProcess) -> ManagedProcess:
        """Read the output of `child`; it is stopped when the block ends."""
        self._children.append(child)
        for stream in (child.process.stdout, child.process.stderr):
            assert stream is not None  # noqa: S101  Popen made both pipes
            self._selector.register(stream, selectors.EVENT_READ, child)
        return child

    def stop(self, child: ManagedProcess) -> None:
        """End one of the processes, or collect what one that has ended has printed."""
        for stream in (child.process.stdout, child.process.stderr):
            if stream is not None and stream in self._selector.get_map():
                self._selector.unregister(stream)
        self._children.remove(child)
        child.stop()

    def wait(self, *, until: float) -> None:
        """Wait for output of any process until `until` (monotonic), and handle it."""
        for key, _ in self._selector.select(max(0.0, until - time.monotonic())):
            child: ManagedProcess = key.data
            stream = key.fileobj
            data = os.read(key.fd, _READ_BYTES)
            if not data:
                self._selector.unregister(stream)
            elif stream is child.process.stdout:
                child.read_stdout(data)
            else:
                child.read_stderr(data)
