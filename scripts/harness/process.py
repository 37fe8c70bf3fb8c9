"""Child processes that print events: netns/children.py's, with what a bench asks of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from netns.base.output import event_of
from netns.children import GRACE_S, Child, Children, Output
from scripts.harness.errors import BenchError

Event = dict[str, Any]
ROOT: Final = Path(__file__).resolve().parent.parent.parent
EVENT_BOUND_S: Final = 120.0
_TAIL_CHARACTERS: Final = 1 << 20
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True, eq=False, kw_only=True)
class Process(Child):
    name: str
    """Its name in messages."""
    events: list[Event] = field(default_factory=list)
    """Its events so far."""
    errors: str = ""
    """The last of its output on stderr so far."""
    pending: list[Event] = field(default_factory=list)
    """Those that `ProcessGroup.event` has not returned."""

    @property
    def failure(self) -> BenchError:
        return BenchError(f"the {self.name} ended with status {self.status}: {self.last_error or 'no output'}")

    @property
    def cpu_s(self) -> float:
        """User and system time so far. Raises BenchError if it has ended."""
        try:
            return processor_s(self.popen.pid)
        except OSError:
            raise self.failure from None

    @property
    def anonymous_bytes(self) -> int:
        """Its private memory, without regions, which are memfds."""
        return anonymous_bytes(self.popen.pid)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)


class ProcessGroup(Children[Process]):
    """Several processes; a context manager that stops them, the last one first."""

    def __init__(self) -> None:
        super().__init__(self._on_line)

    @staticmethod
    def _on_line(child: Process, stream: Output, line: str) -> None:
        if stream == "stderr":
            child.errors = f"{child.errors}{line}\n"[-_TAIL_CHARACTERS:]
        elif (event := event_of(line)) is not None:
            child.events.append(event)
            child.pending.append(event)

    def start(self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> Process:
        """Start a process, with the project's root as its directory so that its modules are found."""
        return self.spawn(command, become=partial(Process, name=name), env=env, directory=ROOT)

    def end(self) -> None:
        for child in reversed(self._all):
            self.stop(child)

    def stop(self, child: Process) -> None:
        """End one of the processes, by SIGKILL if necessary, and have all its output."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            child.signal(number)
            self.turn_while(lambda: child.status is None, within_s=GRACE_S)
        self.turn_while(lambda: bool(child.open_pipes), within_s=GRACE_S)

    def require_running(self) -> None:
        self.turn(until=0.0)
        for child in self._all:
            if child.status is not None:
                self.stop(child)
                raise child.failure

    def event(self, child: Process, kind: str, *, bound_s: float = EVENT_BOUND_S, **fields: str) -> Event:
        """Return the first event of a kind, with these fields, that was not returned yet.

        Raises BenchError if the process ends before, or none comes in time.
        """

        def found() -> list[Event]:
            return [each for each in child.pending if (fields | {"event": kind}).items() <= each.items()]

        self._await(child, lambda: bool(found()), missing=f"sent no {kind!r}", bound_s=bound_s)
        event = found()[0]
        child.pending.remove(event)
        return event

    def said(self, child: Process, text: str, *, bound_s: float = EVENT_BOUND_S) -> None:
        """Wait until a process has printed a text on stderr. Raises BenchError if it ends before, or is late."""
        self._await(child, lambda: text in child.errors, missing=f"did not print {text!r}", bound_s=bound_s)

    def request(self, child: Process, line: str, kind: str, *, bound_s: float = EVENT_BOUND_S) -> Event:
        """Send a line; return the event of the reply."""
        child.write(line.encode() + b"\n")
        return self.event(child, kind, bound_s=bound_s)

    def ended(self, *children: Process, bound_s: float, after_first_s: float = EVENT_BOUND_S) -> None:
        """Wait until processes have ended, and have all their output.

        Raises BenchError if one fails, or has not ended in time, also within `after_first_s` of the first's end.
        """
        give_up_at = time.monotonic() + bound_s
        while late := [child for child in children if child.status is None]:
            if len(late) < len(children):
                give_up_at = min(give_up_at, time.monotonic() + after_first_s)
            if time.monotonic() >= give_up_at:
                reason = " ".join(child.last_error for child in children if child.last_error)
                names = ", ".join(child.name for child in late)
                raise BenchError(f"not done within {bound_s:g} s: {names}" + (f" ({reason})" if reason else ""))
            self.turn(until=give_up_at)
        for child in children:
            self.stop(child)
            if child.status:
                raise child.failure

    def _await(self, child: Process, is_there: Callable[[], bool], *, missing: str, bound_s: float) -> None:
        give_up_at = time.monotonic() + bound_s
        while not is_there():
            if child.status is not None:
                self.stop(child)
                if is_there():
                    return
                raise child.failure
            if time.monotonic() > give_up_at:
                raise BenchError(f"the {child.name} {missing} within {bound_s:g} s: {child.last_error or 'no output'}")
            self.turn(until=give_up_at)


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
