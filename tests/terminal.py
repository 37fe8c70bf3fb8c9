"""A terminal for tests: a stream that is one, and what appears on it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from tests.patience import wait_until

COLUMNS: Final = 200


class Terminal:
    """A pseudo-terminal; a context manager."""

    def __init__(self) -> None:
        self._master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        os.set_blocking(self._master, False)
        self.stream = open(self.slave, "w", closefd=False)  # noqa: SIM115 - a descriptor, closed below
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stream.close()
        os.close(self.slave)
        os.close(self._master)

    @property
    def text(self) -> str:
        """All that was written to it until now."""
        with suppress(BlockingIOError, OSError):
            while chunk := os.read(self._master, 65536):
                self._text += chunk.decode()
        return self._text

    def wait_for(self, text: str) -> None:
        """Return once it shows this. Raises AssertionError, with all that was written, if it does not."""
        try:
            wait_until(lambda: text in self.text)
        except AssertionError:
            raise AssertionError(f"{text!r} is not in {self.text!r}") from None
