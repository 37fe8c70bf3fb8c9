"""What a card gives up once it has started, so that a mistake in it, or an intruder, gets no further.

    forbid_dumps()                                       # first of all, before there is a secret
    ...                                                  # open sockets, files and TCP listeners
    for line in confine(landlock_write=[config.run_dir, audit_path.parent]):
        log.info("confined: %s", line)                   # also what the kernel does not have

Landlock binds the thread that calls it and those that it starts later; so call it before other threads start.

Four measures, each the kernel's; none can be taken back.
1. No core dump: RLIMIT_CORE is 0, and the process is not dumpable (prctl). So its files in /proc belong to root, and
   neither ptrace nor /proc/PID/mem lets another process of the same user read its memory.
2. No new privileges, as by a setuid program.
3. seccomp: the system calls of `nitro_emu.trust.seccomp.DENIED` fail with EPERM: other processes' memory, kernel
   modules, mounts, keys of the kernel, clocks. No new process (threads are none; execve stays, for a live update).
   Sockets are UDP over IP or Unix sockets, and netlink to the routing tables, by which libraries list this host's
   interfaces; with `tcp_sockets`, TCP, too. A card with CAP_NET_ADMIN could change routes by netlink; it needs no such
   capability.
4. Landlock: no TCP connect; files are created, written and removed beneath the given directories only; no signals to
   other programs.

What is left open. An event loop of libuv has an io_uring from its start, which stays usable: through it a socket of any
kind could be made unseen by seccomp. Landlock sees its connect all the same. Root can do everything to any process.

A confined process stays confined when it replaces itself (execve). Only the first measure has to be applied anew then,
and Landlock allows 16 layers: later ones are reported as already there.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from nitro_emu.errors import TrustError
from nitro_emu.trust import landlock
from nitro_emu.trust.seccomp import MACHINES, filter_program, load_filter

_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_libc: Final = ctypes.CDLL(None, use_errno=True)


def confine(*, landlock_write: Sequence[Path], tcp_sockets: bool = False) -> list[str]:
    """Confine this process; return what was applied, and what the kernel does not have, a line each.

    `landlock_write`: directories beneath which files may be written. Each must exist; it may also be removed, if empty.
    `tcp_sockets`: leave the making of TCP sockets allowed, for a card that listens (metrics, mappings) and makes its
    listeners anew after a live update; then the kernel must have Landlock, which denies their connect.

    Raises TrustError if a measure is refused that the kernel has.
    """
    if tcp_sockets and landlock.abi() < landlock.NETWORK_ABI:
        raise TrustError(
            "this kernel has no Landlock for the network, so TCP cannot be limited to listening; set neither metrics "
            "nor control_plane.listen, or use Linux 6.7"
        )
    applied = [forbid_dumps(), _no_new_privileges(), landlock.restrict(landlock_write)]
    return [*applied, _filter(tcp_sockets=tcp_sockets)]


def forbid_dumps() -> str:
    """Let nobody but root read this process's memory, nor a core dump of it; return that as a line.

    A program that replaces this one by execve calls it again.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(_PR_SET_DUMPABLE, 0)
    return "no core dump; memory not readable by ptrace and /proc"


def _no_new_privileges() -> str:
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return "no new privileges"


def _prctl(option: int, value: int) -> None:
    """Raises TrustError."""
    if _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        raise TrustError(
            f"prctl {option} is refused: {os.strerror(ctypes.get_errno())}; run the card without confinement"
        )


def _filter(*, tcp_sockets: bool) -> str:
    machine = os.uname().machine
    if machine not in MACHINES:
        return f"seccomp: there is no table of system calls for {machine}, so none is denied"
    has_ring = _has_ring()
    program = filter_program(machine, tcp_sockets=tcp_sockets, event_loop_ring=has_ring)
    if (reason := load_filter(program, machine=machine)) is not None:
        return f"seccomp: this kernel has none ({reason}), so no system call is denied"
    sockets = "UDP, TCP that listens, Unix" if tcp_sockets else "UDP, Unix"
    ring = "; the event loop's io_uring stays" if has_ring else ""
    return f"seccomp: no new processes, no foreign memory, no system administration; sockets: {sockets}{ring}"


def _has_ring() -> bool:
    """Return whether this process has an io_uring: libuv makes one where it may."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the iteration itself
            if "io_uring" in str(descriptor.readlink()):
                return True
    return False
