"""The programs of other packages that this package runs, or its documentation or the benches; and who ends with whom.

Whatever starts a process that may run for long starts it by `ending_with_us`, or forks it with `end_with`: then even
SIGKILL of the one leaves nothing of the other. Only the processes of a lab outlive who has started them: its record
names them (netns/lab/state.py).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from typing import Final

from netns.errors import BackendError

_PACKAGES: Final = {
    "cc": "gcc",
    "ethtool": "ethtool",
    "insmod": "kmod",
    "ip": "iproute2",
    "iperf3": "iperf3",
    "openvpn": "openvpn",
    "perf": "linux-perf",
    "ping": "iputils-ping",
    "redis-benchmark": "redis-tools",
    "redis-server": "redis-server",
    "setpriv": "util-linux",
    "tc": "iproute2",
    "tcpdump": "tcpdump",
    "traceroute": "traceroute",
    "unshare": "util-linux",
    "wireguard-go": "wireguard-go",
}
"""Debian's packages."""


WITHIN_S: Final = 10.0
"""Of a program that changes or tells what the kernel has."""
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def ending_with_us(command: Sequence[str]) -> list[str]:
    """Return the command line by which `command` is killed when this process ends, in whatever way.

    For the kernel it is the thread that ends: start it from one that lives as long as the process.
    """
    return [tool("setpriv"), "--pdeathsig", "KILL", "--", *command]


def end_with(parent_pid: int) -> None:
    """Have this process, a fork of `parent_pid`, killed when that ends, in whatever way."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it has ended before the call
        os._exit(1)


def output_of(command: Sequence[str], *, called: str) -> str:
    """Run a command to its end, and return what it prints on stdout.

    Raises BackendError if it fails or takes too long, with what it is `called`, and why.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"{called}: {error}") from None
    if done.returncode != 0:
        complaint = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
        raise BackendError(f"{called}: {complaint}")
    return done.stdout


def tool(name: str) -> str:
    """Return the path of a program, even if PATH has no sbin. Raises BackendError, with its package, if not found."""
    path = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))
    if path is None:
        if package := _PACKAGES.get(name):
            raise BackendError(f"{name}: not installed; install the package {package}")
        raise BackendError(f"{name}: no such command; install the package that has it, or give its path")
    return path
