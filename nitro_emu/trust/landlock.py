"""Landlock: what a thread, and those that it starts, may do with files and TCP, from now on and for ever.

line = restrict([Path("/run/nitro-card")])           # writes beneath it only, no TCP connect, no signals to others
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from nitro_emu.errors import TrustError

NETWORK_ABI: Final = 4
"""The first version with rules for TCP (Linux 6.7)."""

_SIGNAL_ABI: Final = 6
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every machine
_VERSION: Final = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH: Final = 1

_WRITE_FILE, _REMOVE_DIR, _TRUNCATE = 1 << 1, 1 << 4, 1 << 14
_WRITES: Final = {1: _WRITE_FILE | sum(1 << bit for bit in range(4, 13)), 2: 1 << 13, 3: _TRUNCATE}
"""Rights by the version that brought them: write and remove files, make entries of any kind; rename to another
directory; truncate."""

_CONNECT_TCP: Final = 1 << 1
_SCOPE_SIGNAL: Final = 1 << 1
_RULE: Final = struct.Struct("=Qi")
_libc: Final = ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """Return the kernel's version of Landlock; 0 if it has none, or if it is switched off."""
    return max(0, _syscall(_CREATE_RULESET, None, 0, _VERSION))


def restrict(writable: Sequence[Path]) -> str:
    """Restrict this thread and those that it starts; return what was applied, as a line.

    Files may be written beneath the directories only, and these may be removed; /dev/null stays writable. TCP connects
    and signals to other programs are denied where the kernel can. Raises TrustError for a directory that cannot be
    opened, or if the kernel refuses.
    """
    if not (version := abi()):
        return "Landlock: this kernel has none, so files and TCP connects are not limited by it"
    with ExitStack() as opened:
        ruleset = _ruleset(version, opened=opened)
        rights = _writes(version)
        _allow(ruleset, Path(os.devnull), rights=rights & (_WRITE_FILE | _TRUNCATE), opened=opened)
        for directory in writable:
            _allow(ruleset, directory, rights=rights, opened=opened)
            _allow(ruleset, directory.parent, rights=_REMOVE_DIR, opened=opened)
        if _syscall(_RESTRICT_SELF, ruleset, 0, 0):
            if (number := ctypes.get_errno()) == errno.E2BIG:
                return "Landlock: the 16 layers of this process are in use, so those before stay in force"
            raise TrustError(f"Landlock is refused: {os.strerror(number)}; set no_new_privs first")
    return _applied(version, writable)


def _applied(version: int, writable: Sequence[Path]) -> str:
    parts = [f"files are written beneath {', '.join(map(str, writable)) or 'no directory'} only"]
    parts.append("no TCP connect" if version >= NETWORK_ABI else "TCP connects are not limited (this kernel: no)")
    parts.append("no signals to others" if version >= _SIGNAL_ABI else "signals are not limited (this kernel: no)")
    if (others := len(os.listdir("/proc/self/task")) - 1) > 0:  # noqa: PTH208 - a directory of the kernel's
        parts.append(f"{others} threads that had started before are not bound")
    return f"Landlock {version}: {'; '.join(parts)}"


def _writes(version: int) -> int:
    return sum(rights for since, rights in _WRITES.items() if since <= version)


def _ruleset(version: int, *, opened: ExitStack) -> int:
    fields = [_writes(version)]
    if version >= NETWORK_ABI:
        fields.append(_CONNECT_TCP)
    if version >= _SIGNAL_ABI:
        fields.append(_SCOPE_SIGNAL)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        raise TrustError(f"Landlock: no ruleset can be made: {os.strerror(ctypes.get_errno())}")
    opened.callback(os.close, ruleset)
    return ruleset


def _allow(ruleset: int, path: Path, *, rights: int, opened: ExitStack) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise TrustError(f"{path}: cannot be opened: {error.strerror}; make the directory before") from error
    opened.callback(os.close, place)
    if _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, _RULE.pack(rights, place), 0):
        raise TrustError(
            f"{path}: Landlock takes no rule for it: {os.strerror(ctypes.get_errno())}; is it a directory?"
        )


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    converted = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *converted)
    return result
