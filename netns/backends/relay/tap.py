"""TAP devices in named namespaces: attach to an existing one, and read the kernel's count of dropped frames.

Rules:

- A tun file belongs permanently to the namespace in which it was *opened* (tun_chr_open takes the opener's), and keeps
  that namespace alive. So the device file is opened inside the namespace, and must be closed before it can go away.
- TUNSETIFF on a name that does not exist creates a device. The name is looked up first, because a relay only attaches.
- Attaching gives the device its carrier, but its queue drops everything until the kernel's link watch runs, some
  time later. A query of the link's state (ETHTOOL_GLINK) runs the link watch at once.
- No IFF_VNET_HDR and no TUNSETOFFLOAD: the kernel then segments and computes checksums in software before it delivers a
  frame. Each read is one packet as on a wire, and loss applies to packets, not to super-packets.

Python 3.11 has no os.setns; ctypes calls libc's. It moves the calling thread only, and `inside` moves it back.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from netns.errors import BackendError
from netns.signals import undisturbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

NETNS_DIRECTORY: Final = Path("/run/netns")

# linux/if_tun.h, linux/sched.h, linux/sockios.h, linux/ethtool.h
TUNSETIFF: Final = 0x400454CA
IFF_TAP: Final = 0x0002
IFF_NO_PI: Final = 0x1000
CLONE_NEWNET: Final = 0x40000000
SIOCGIFMTU: Final = 0x8921
SIOCETHTOOL: Final = 0x8946
ETHTOOL_GLINK: Final = 0x0000000A

_IFREQ_FLAGS: Final = struct.Struct("16sH22x")
_IFREQ_DATA: Final = struct.Struct("16sP16x")
_IFREQ_MTU: Final = struct.Struct("16si20x")
_ETHTOOL_VALUE: Final = struct.Struct("II")
# The bytes of a frame beyond the device's MTU: an Ethernet header and a VLAN tag.
_HEADER_BYTES: Final = 14 + 4
_NET_DEV_BYTES: Final = 1 << 20

_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Tap:
    """An attached TAP. `fd` is non-blocking; one read is one Ethernet frame, one write is one Ethernet frame."""

    netns: str
    ifname: str
    fd: int
    frame_bytes: int
    """The largest frame to read, from the MTU at the time of attaching; a longer one would be truncated."""

    statistics_fd: int
    """The namespace's /proc/net/dev, which stays readable from outside it."""

    def close(self) -> None:
        """Detach; the device remains, without carrier."""
        os.close(self.fd)
        os.close(self.statistics_fd)

    def dropped_unread(self) -> int:
        """Count the frames that the kernel dropped because the queue of unread frames was full (tx_dropped)."""
        for line in os.pread(self.statistics_fd, _NET_DEV_BYTES, 0).decode().splitlines():
            name, colon, numbers = line.partition(":")
            if colon and name.strip() == self.ifname:
                return int(numbers.split()[11])
        return 0


def attach(*, netns: str, ifname: str) -> Tap:
    """Attach to the existing TAP `ifname` of the named namespace; BackendError if that fails."""
    with inside(netns):
        try:
            socket.if_nametoindex(ifname)
        except OSError:
            raise BackendError(f"{netns}: there is no interface {ifname}") from None
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, TUNSETIFF, _IFREQ_FLAGS.pack(ifname.encode(), IFF_TAP | IFF_NO_PI))
            frame_bytes = _mtu_with_carrier(ifname) + _HEADER_BYTES
            statistics_fd = os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            os.close(fd)
            raise BackendError(f"{netns}: cannot attach to {ifname}: {_reason(error)}") from None
    return Tap(netns=netns, ifname=ifname, fd=fd, frame_bytes=frame_bytes, statistics_fd=statistics_fd)


def identity_of(netns: str) -> tuple[int, int] | None:
    """Return what distinguishes the named namespace from a later one of the same name; None if there is none."""
    try:
        status = (NETNS_DIRECTORY / netns).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def inside(netns: str) -> Iterator[None]:
    """Move the calling thread into the named namespace for a `with` block; BackendError if it does not exist."""
    own_fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            target_fd = os.open(NETNS_DIRECTORY / netns, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise BackendError(f"there is no network namespace {netns}") from None
        try:
            _setns(target_fd, name=netns)
        finally:
            os.close(target_fd)
        try:
            yield
        finally:
            _setns(own_fd, name="its own")
    finally:
        os.close(own_fd)


def in_thread_of_own(work: Callable[[], T]) -> T:
    """Return `work()`, called in a thread that ends with it, and so may leave its namespace; raises what it raises."""
    with undisturbed(), ThreadPoolExecutor(1) as threads:  # an interrupted wait would leave it running (bpo-45274)
        return threads.submit(work).result()


def in_nameless_namespace(work: Callable[[], T]) -> T:
    """Return `work()`, called in a new network namespace that ends with it; raises what it raises."""

    def inside_it() -> T:
        if _libc.unshare(CLONE_NEWNET) != 0:  # moves the calling thread only
            raise BackendError(f"cannot make a network namespace: {os.strerror(ctypes.get_errno())}")
        return work()

    return in_thread_of_own(inside_it)


def _mtu_with_carrier(ifname: str) -> int:
    """Make the kernel see the carrier; return the device's MTU."""
    value = ctypes.create_string_buffer(_ETHTOOL_VALUE.pack(ETHTOOL_GLINK, 0), _ETHTOOL_VALUE.size)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCETHTOOL, _IFREQ_DATA.pack(ifname.encode(), ctypes.addressof(value)))
        answer = fcntl.ioctl(control, SIOCGIFMTU, _IFREQ_MTU.pack(ifname.encode(), 0))
    return int(_IFREQ_MTU.unpack(answer)[1])


def _setns(fd: int, *, name: str) -> None:
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise BackendError(f"cannot enter the network namespace {name}: {reason}")


def _reason(error: OSError) -> str:
    reasons = {
        errno.EBUSY: "another process holds it",
        errno.EINVAL: "it is not a TAP device",
        errno.EPERM: "run as root",
    }
    return reasons.get(error.errno or 0, error.strerror or str(error))
