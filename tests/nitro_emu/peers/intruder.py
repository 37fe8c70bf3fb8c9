"""What a process tries with another one: `python intruder.py PID`. It prints {attempt: "done" or the error}."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_PTRACE_ATTACH, _PTRACE_SEIZE, _PTRACE_DETACH = 16, 0x4206, 17
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def read_memory(pid: int) -> None:
    start = Path(f"/proc/{pid}/maps").read_text().partition("-")[0]
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
        file.seek(int(start, 16))
        file.read(16)


def read_vm(pid: int) -> None:
    """The address of something that both have: a program's own is a good guess, as the call checks permission first."""
    room = ctypes.create_string_buffer(16)
    here = _Iovec(ctypes.addressof(room), 16)
    there = _Iovec(0x1000, 16)
    result = _libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if result < 0 and ctypes.get_errno() == 14:  # EFAULT: permitted, and nothing is there
        return
    checked(result)


def trace(pid: int, request: int) -> None:
    checked(_libc.ptrace(request, pid, None, None))
    if request == _PTRACE_ATTACH:
        os.waitpid(pid, 0)
    _libc.ptrace(_PTRACE_DETACH, pid, None, None)


def take_descriptor(pid: int) -> None:
    pidfd = checked(_libc.syscall(_PIDFD_OPEN, pid, 0))
    os.close(checked(_libc.syscall(_PIDFD_GETFD, pidfd, 1, 0)))


def main() -> None:
    """Try everything."""
    pid = int(sys.argv[1])
    attempts: dict[str, Callable[[], object]] = {
        "mem": lambda: read_memory(pid),
        "write mem": lambda: Path(f"/proc/{pid}/mem").open("r+b").close(),
        "maps": lambda: Path(f"/proc/{pid}/maps").read_text(),
        "environ": lambda: Path(f"/proc/{pid}/environ").read_bytes(),
        "descriptors": lambda: [each.readlink() for each in Path(f"/proc/{pid}/fd").iterdir()],
        "process_vm_readv": lambda: read_vm(pid),
        "pidfd_getfd": lambda: take_descriptor(pid),
        "attach": lambda: trace(pid, _PTRACE_ATTACH),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            found[name] = "done"
        except OSError as error:
            found[name] = error.strerror or str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    signal.alarm(60)
    main()
