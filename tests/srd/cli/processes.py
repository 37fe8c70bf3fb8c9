"""`srd` as real processes: started, read from with deadlines, ended by their own process id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pytest

from tests.patience import PATIENCE_S
from tests.programs import run_to_end

LONG_BYTES = 2 << 30
"""Size of a file that takes longer to send than any test runs."""


Called = Callable[..., subprocess.CompletedProcess[str]]
"""The fixture `called`: runs a command line in this process."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "srd", *arguments]


def receives(output: Path, *options: str) -> list[str]:
    """Return the arguments of `srd recv` at a free port of loopback."""
    return ["recv", "-B", "127.0.0.1", "-p", "0", "--output", str(output), *options]


class Lines:
    """The lines that a process writes to a stream; reading waits, with a deadline."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lines: list[str] = []
        self._taken = 0
        self._ended = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            with self._changed:
                self._lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def next(self) -> str | None:
        """Return the next line; None at the end."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._ended or len(self._lines) > self._taken, PATIENCE_S)
            assert done, f"no line within {PATIENCE_S} s"
            if self._taken == len(self._lines):
                return None
            self._taken += 1
            return self._lines[self._taken - 1]

    def all(self) -> list[str]:
        """Return every line to the end of the stream."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended, PATIENCE_S), f"no end within {PATIENCE_S} s"
            return list(self._lines)

    def close(self) -> None:
        self._thread.join(PATIENCE_S)
        self._stream.close()


class Process:
    """A command whose output is read line by line, with deadlines; killed at the end if it still runs."""

    def __init__(self, argv: Sequence[str], *, stdin: int | None = None) -> None:
        self.popen = subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        self.stdout, self.stderr = Lines(self.popen.stdout), Lines(self.popen.stderr)

    def event(self, wanted: str) -> dict[str, Any]:
        """Return the next JSON event of this kind; skip those before it."""
        while (line := self.stdout.next()) is not None:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == wanted:
                return event
        raise AssertionError(f"no event {wanted!r}; status {self.wait()}; stderr: {self.stderr.all()}")

    def events(self) -> list[dict[str, Any]]:
        """Return all events that were not returned yet, to the end."""
        found = []
        while (line := self.stdout.next()) is not None:
            found.append(json.loads(line))
        return found

    def line(self, text: str, *, of: Lines | None = None) -> str:
        """Return the next line of stderr, or of stdout, that contains `text`; skip those before it."""
        lines = of or self.stderr
        while (line := lines.next()) is not None:
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r} in {lines.all()}; status {self.wait()}: {self.stderr.all()}")

    def kill(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def wait(self, *, within_s: float = PATIENCE_S) -> int:
        return self.popen.wait(within_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        self.stdout.close()
        self.stderr.close()


@contextmanager
def receiver(output: Path, *options: str) -> Iterator[tuple[Process, str]]:
    """`srd recv --json-lines` on loopback; gives it and HOST:PORT."""
    with Process(command(*receives(output, "--json-lines", *options))) as process:
        port = process.event("listening")["port"]
        yield process, f"127.0.0.1:{port}"


def srd(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return run_to_end(command(*arguments), stdin=subprocess.DEVNULL)


def run_here(
    main: Callable[[], object], argv: Sequence[str], *, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch
) -> subprocess.CompletedProcess[str]:
    """Run a command line in this process, which is faster, for commands that end by themselves."""
    patch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capsys.readouterr()
    status = caught.value.code
    assert isinstance(status, int)
    return subprocess.CompletedProcess(argv, status, out, err)


def assert_fails(result: subprocess.CompletedProcess[str], *, status: int, error: str) -> None:
    """The status, nothing on stdout, and one line on stderr that contains `error`."""
    assert result.returncode == status, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("srd: ")
    assert error in lines[0], lines[0]


def long_file(directory: Path, *, size_bytes: int = LONG_BYTES) -> Path:
    """A file of allocated blocks, which are no hole though nothing was written to them."""
    path = directory / "long.bin"
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size_bytes)
    return path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())
