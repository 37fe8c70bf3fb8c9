"""The programs of other packages that this package runs, or that its documentation or the benches use."""

from __future__ import annotations

import os
import shutil
from typing import Final

from netns.errors import BackendError

_PACKAGES: Final = {
    "cc": "gcc",
    "ethtool": "ethtool",
    "insmod": "kmod",
    "ip": "iproute2",
    "iperf3": "iperf3",
    "openvpn": "openvpn",
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


def tool(name: str) -> str:
    """Return the path of a program, even if PATH has no sbin. Raises BackendError, with its package, if not found."""
    path = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))
    if path is None:
        if package := _PACKAGES.get(name):
            raise BackendError(f"{name}: not installed; install the package {package}")
        raise BackendError(f"{name}: no such command; install the package that has it, or give its path")
    return path
