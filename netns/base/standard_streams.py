"""The standard streams of a command, whatever it was started with: closed, full, or without a reader.

A descriptor from 0 to 2 that is closed is the next one that something else opens: what is printed would go into a
socket, and libuv ends the process when it closes one that is so low. So a command opens /dev/null in its place first.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CLOSED: Final = set[int]()
_UNWRITABLE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""Errors of write(2) for which a file or a terminal is to blame."""


def open_closed() -> None:
    """Open /dev/null for each closed standard stream; to be called before anything else is opened."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)  # noqa: FBT003 - takes no keyword
        _CLOSED.add(fd)
    os.close(fd)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - descriptors, which stay open
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def was_closed(fd: int) -> bool:
    """Whether the process was started without standard input (0), output (1) or error output (2)."""
    return fd in _CLOSED


def flush_output() -> None:
    """Write what was printed. Raises OSError: see `output_error`."""
    sys.stdout.flush()


@contextmanager
def broken_pipes() -> Iterator[None]:
    """Raise BrokenPipeError for an output without a reader, where click wraps the streams and ends in silence."""
    streams = sys.stdout, sys.stderr
    try:
        yield
    except SystemExit:
        if sys.stdout is streams[0]:
            raise
        sys.stdout, sys.stderr = streams
        raise BrokenPipeError from None


def is_output_error(error: BaseException) -> bool:
    """Whether standard output cannot be written, which concerns all that a daemon does."""
    is_known = isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE
    return isinstance(error, BrokenPipeError) or is_known


def output_error(error: OSError) -> str:
    """Return one line for what ends a command: its output, a file that the error names, or too many descriptors.

    Nothing more is written there, or the interpreter would report the same error once more. Raises all other errors.
    """
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{error.strerror}: raise the limit of this process (ulimit -n) or of the system (fs.file-max)"
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if not is_output_error(error):
        raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(error, BrokenPipeError):
        return "the output was closed by its reader"
    return f"the output cannot be written: {error.strerror}"
