"""The descriptors of a TUN interface: one packet a read, one packet a write, behind a virtio-net header.

Rules (drivers/net/tun.c, include/linux/virtio_net.h):

- The interface is made by TUNSETIFF and is not persistent: it disappears with its last descriptor, whatever ends the
  process, and its addresses and routes disappear with it. A program that replaces itself (execve) keeps descriptors.
- Each packet follows a virtio-net header of 10 bytes (IFF_VNET_HDR), little-endian (TUNSETVNETLE). The header says what
  is still to be done: a checksum to fill in, a super-packet to cut into segments.
- TUNSETOFFLOAD says which of that the reader does; the kernel does the rest before it hands a packet over. What was
  queued before a change is as it was agreed before. What is *written* needs no agreement.
- A descriptor belongs to the namespace in which the device file was opened, wherever it is used.
- A packet that is longer than the buffer is truncated without notice: MAX_READ_BYTES is enough for every packet.

A TUN interface takes any packet while it is up; a packet that it does not take is dropped and counted by its reason, as
a network does.
"""

from __future__ import annotations

import enum
import errno
import fcntl
import os
import socket
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from srd.tunnel.errors import InterfaceGoneError, TunnelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

HEADER_BYTES: Final = 10
"""struct virtio_net_hdr (linux/virtio_net.h)."""
MAX_READ_BYTES: Final = HEADER_BYTES + 40 + 65_535
"""The longest packet is one of IPv6: the length in its header does not count the header."""
MAX_NAME_BYTES: Final = 15  # IFNAMSIZ of linux/if.h, less the final zero

DEVICE: Final = "/dev/net/tun"
# linux/if_tun.h, with the numbers of asm-generic/ioctl.h
TUNSETIFF: Final = 0x400454CA
TUNGETIFF: Final = 0x800454D2
TUNSETOFFLOAD: Final = 0x400454D0
TUNSETVNETLE: Final = 0x400454DC
IFF_TUN: Final = 0x0001
IFF_MULTI_QUEUE: Final = 0x0100
IFF_NO_PI: Final = 0x1000
IFF_VNET_HDR: Final = 0x4000
IFF_TUN_EXCL: Final = 0x8000

_IFREQ: Final = struct.Struct("=16sH22x")
_INT: Final = struct.Struct("=i")
_OPENED: Final = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC


class Offload(enum.Flag):
    """What the reader of a TUN interface does instead of the kernel; the values are TUN_F_... of linux/if_tun.h."""

    CHECKSUM = 0x01
    """Fill in the checksum of TCP and UDP; all others need it."""
    TSO4 = 0x02
    """Cut a super-packet of TCP over IPv4 into segments."""
    TSO6 = 0x04
    TSO_ECN = 0x08
    """The same for a super-packet that carries CWR (RFC 3168), which only its first segment keeps."""
    USO4 = 0x20
    """The same for UDP (UDP_SEGMENT). Linux 6.2 and later, and only together with USO6."""
    USO6 = 0x40


NO_OFFLOAD: Final = Offload(0)
TSO: Final = Offload.TSO4 | Offload.TSO6
USO: Final = Offload.USO4 | Offload.USO6
ALL_OFFLOAD: Final = Offload.CHECKSUM | TSO | Offload.TSO_ECN | USO
_GIVEN_UP: Final = (NO_OFFLOAD, USO, Offload.TSO_ECN, TSO, Offload.CHECKSUM)
"""In this order, one after the other, where the kernel refuses what is left."""


class WriteDrop(enum.StrEnum):
    """Why a packet was not written."""

    DOWN = "down"
    """The interface is down."""
    FULL = "full"
    """The interface has as many written packets in the kernel as its send buffer allows."""
    NO_MEMORY = "no_memory"
    REFUSED = "refused"
    """It is no IP packet, or its header says what cannot be."""


_DROPS: Final = {
    errno.EIO: WriteDrop.DOWN,
    errno.EAGAIN: WriteDrop.FULL,
    errno.ENOBUFS: WriteDrop.NO_MEMORY,
    errno.ENOMEM: WriteDrop.NO_MEMORY,
}
_GONE: Final = frozenset({errno.EBADFD, errno.ENODEV})


class Tun:
    """A TUN interface that exists as long as this object is open. Not safe for threads that share a queue."""

    __slots__ = ("fds", "index", "offload")

    def __init__(self, fds: tuple[int, ...], *, index: int, offload: Offload) -> None:
        """Take over the attached descriptors; see `open`."""
        self.fds = fds
        """A descriptor for each queue, to wait for packets; it is readable, too, once the interface was deleted."""
        self.index: Final = index
        """The interface's number, which outlasts a change of its name."""
        self.offload: Final = offload
        """What the kernel leaves to the reader: what was asked for, or as much of it as this kernel has."""

    @classmethod
    def open(cls, name: str | None = None, *, queues: int = 1, offload: Offload = ALL_OFFLOAD) -> Self:
        """Make the interface, down and without addresses, in the caller's network namespace; raises TunnelError.

        Without a `name` the kernel numbers it: srd0, srd1 ... With several queues it spreads flows over them by hash.
        """
        flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR | (IFF_MULTI_QUEUE if queues > 1 else 0)
        asked = "srd%d" if name is None else _checked(name)
        fds: list[int] = []
        try:
            for _ in range(queues):
                fds.append(_open_device())
                if len(fds) == 1:
                    _attach(fds[0], name=asked, flags=flags | IFF_TUN_EXCL)
                    _set_little_endian(fds[0])
                else:
                    _attach(fds[-1], name=_name_of(fds[0]), flags=flags)
            accepted = _set_offload(fds[0], offload)
            return cls(tuple(fds), index=_index_of(fds[0]), offload=accepted)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    @classmethod
    def adopt(cls, fds: tuple[int, ...], *, index: int, offload: Offload = ALL_OFFLOAD) -> Self:
        """Take over the descriptors that the program before this one has kept (`keep_over_exec`), and `index`.

        The interface may have been deleted since; then `name` and `read_into` say so. Raises TunnelError for
        descriptors of something else.
        """
        for fd in fds:
            os.set_inheritable(fd, False)  # noqa: FBT003 - its signature
        try:
            accepted = _set_offload(fds[0], offload)
        except InterfaceGoneError:
            accepted = NO_OFFLOAD
        return cls(fds, index=index, offload=accepted)

    def keep_over_exec(self) -> tuple[int, ...]:
        """Return descriptors for `adopt`, with which the interface stays when this is closed, and over an exec."""
        kept = tuple(map(os.dup, self.fds))
        for fd in kept:
            os.set_inheritable(fd, True)  # noqa: FBT003 - its signature
        return kept

    @property
    def name(self) -> str:
        """The interface's present name; InterfaceGoneError if it was deleted."""
        return _name_of(self.fds[0])

    def read_into(self, view: memoryview, *, queue: int = 0) -> int | None:
        """Read the next header and packet; return their bytes, None if none waits. Raises InterfaceGoneError."""
        try:
            return os.readv(self.fds[queue], (view,))
        except BlockingIOError:
            return None
        except OSError as error:
            raise _ended(error) from None

    def write(self, views: Sequence[memoryview | bytes], *, queue: int = 0) -> WriteDrop | None:
        """Write one packet, its header first, from up to 1,024 pieces; return why it was dropped, None: it was not.

        Raises InterfaceGoneError.
        """
        try:
            os.writev(self.fds[queue], views)
        except OSError as error:
            if error.errno in _GONE:
                raise _ended(error) from None
            return _DROPS.get(error.errno or 0, WriteDrop.REFUSED)
        return None

    def close(self) -> None:
        """Delete the interface, with its addresses and routes."""
        fds, self.fds = self.fds, ()
        for fd in fds:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _checked(name: str) -> str:
    """Return `name` if an interface can have it (net/core/dev.c, dev_valid_name)."""
    if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
        raise TunnelError(f"interface name {name!r}: use 1 to {MAX_NAME_BYTES} bytes")
    if name in {".", ".."} or any(character in "/:%\0" or character.isspace() for character in name):
        raise TunnelError(f"interface name {name!r}: use letters, digits, '-', '_' and '.'")
    return name


def _open_device() -> int:
    try:
        return os.open(DEVICE, _OPENED)
    except FileNotFoundError:
        remedy = "load the module tun; start a container with --device /dev/net/tun"
    except PermissionError:
        remedy = "run as root, or give the user access to it"
    except OSError as error:
        remedy = f"{error.strerror}; is the module tun loaded?"
    raise TunnelError(f"cannot open {DEVICE}: {remedy}")


def _attach(fd: int, *, name: str, flags: int) -> None:
    try:
        fcntl.ioctl(fd, TUNSETIFF, _IFREQ.pack(name.encode(), flags))
    except OSError as error:
        reasons = {
            errno.EBUSY: "there is an interface of this name; choose another",
            errno.EPERM: "run as root or with CAP_NET_ADMIN (container: --cap-add NET_ADMIN)",
            errno.E2BIG: "too many queues",
            errno.EINVAL: "the kernel has no such TUN interface (IFF_VNET_HDR, IFF_MULTI_QUEUE) or no such name",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        what = "an interface" if "%" in name else f"the interface {name}"  # the kernel would have numbered it
        raise TunnelError(f"cannot make {what}: {reason}") from None


def _set_little_endian(fd: int) -> None:
    """Fix the header's byte order. Kernels before 4.0 know only their own, which is little-endian nearly everywhere."""
    try:
        fcntl.ioctl(fd, TUNSETVNETLE, _INT.pack(1))
    except OSError as error:
        if sys.byteorder != "little":
            raise TunnelError(f"TUN interfaces need Linux 4.0 on this processor: {error.strerror}") from None


def _set_offload(fd: int, offload: Offload) -> Offload:
    """Set as much of `offload` as the kernel has; return that."""
    for given_up in _GIVEN_UP:
        offload = _consistent(offload & ~given_up)
        try:
            fcntl.ioctl(fd, TUNSETOFFLOAD, offload.value)
        except OSError as error:
            if error.errno in _GONE:
                raise _ended(error) from None
        else:
            return offload
    raise TunnelError("this kernel cannot change a TUN interface's offloads (TUNSETOFFLOAD)")


def _consistent(offload: Offload) -> Offload:
    """Return `offload` without what needs something that it lacks (tun.c, set_offload)."""
    if Offload.CHECKSUM not in offload:
        return NO_OFFLOAD
    if USO not in offload:
        offload &= ~USO
    if not offload & TSO:
        offload &= ~Offload.TSO_ECN
    return offload


def _name_of(fd: int) -> str:
    try:
        answer: bytes = fcntl.ioctl(fd, TUNGETIFF, bytes(_IFREQ.size))
    except OSError as error:
        raise _ended(error) from None
    name: bytes = _IFREQ.unpack(answer)[0]
    return os.fsdecode(name.rstrip(b"\0"))


def _index_of(fd: int) -> int:
    """Return the interface's number, even while a daemon renames new interfaces."""
    while True:
        name = _name_of(fd)
        with suppress(OSError):
            index = socket.if_nametoindex(name)
            if _name_of(fd) == name:
                return index


def _ended(error: OSError) -> TunnelError:
    if error.errno in _GONE:
        return InterfaceGoneError("the tunnel's interface was deleted")
    return TunnelError(f"the tunnel's interface: {error.strerror or error}")
