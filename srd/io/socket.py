"""UDP sockets of an endpoint: one per path, never connected.

With fib_multipath_hash_policy=1 the kernel hashes a connected UDP socket by a random number drawn at connect(), not by
its source port (net/ipv4/route.c), so that the port would not select the path. An unconnected socket is hashed by its
source port.

All packets are sent as ECN-capable (ECT(0), RFC 3168), as QUIC's are, so that routers can mark them instead of dropping
them; received packets are reported with their mark. An IPv6 socket also carries IPv4, unless the system forbids it, so
the options of both are set.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from srd.io import syscalls
from srd.io.addresses import canonical
from srd.io.syscalls import Address

BUFFER_BYTES: Final = 32 << 20
"""Socket buffers: twice the default receive window, as the kernel's overhead counts, too. Without CAP_NET_ADMIN the
kernel grants less."""
ECT_0: Final = 2
"""ECN-capable transport (RFC 3168, section 5), in the low two bits of IPv4's TOS and IPv6's traffic class."""
MAX_ERRORS: Final = 256
"""Errors read from an error queue at a time: bounds the work where ICMP errors arrive faster than they are drained."""
BOOT_ID, NETWORK_NAMESPACE = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/net")
IP_UDP_BYTES: Final = {socket.AF_INET: 28, socket.AF_INET6: 48}
EXTENDED_ERROR: Final = struct.Struct("=IB3xI4x")
"""struct sock_extended_err (linux/errqueue.h): the errno, who reports it, three bytes, the MTU if it is EMSGSIZE."""
IP_UDP_BYTES_BY_ORIGIN: Final = {2: IP_UDP_BYTES[socket.AF_INET], 3: IP_UDP_BYTES[socket.AF_INET6]}
"""By SO_EE_ORIGIN_ICMP and SO_EE_ORIGIN_ICMP6: an IPv6 socket may have sent the datagram over IPv4."""


def open_socket(address: Address, *, family: socket.AddressFamily, share_port: bool = False) -> socket.socket:
    """Bind a non-blocking UDP socket with receive timestamps, GRO, DF set and ICMP errors queued. Raises OSError.

    With `share_port` the port may be that of another socket of this user that allows it (SO_REUSEPORT).
    """
    sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        if share_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        for force, plain in ((syscalls.SO_SNDBUFFORCE, socket.SO_SNDBUF), (syscalls.SO_RCVBUFFORCE, socket.SO_RCVBUF)):
            try:
                sock.setsockopt(socket.SOL_SOCKET, force, BUFFER_BYTES)
            except PermissionError:
                sock.setsockopt(socket.SOL_SOCKET, plain, BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, syscalls.SO_TIMESTAMPNS, 1)
        sock.setsockopt(socket.IPPROTO_IP, syscalls.IP_MTU_DISCOVER, syscalls.IP_PMTUDISC_PROBE)
        sock.setsockopt(socket.IPPROTO_IP, syscalls.IP_RECVERR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, syscalls.IPV6_MTU_DISCOVER, syscalls.IP_PMTUDISC_PROBE)
            sock.setsockopt(socket.IPPROTO_IPV6, syscalls.IPV6_RECVERR, 1)
        _enable_ecn(sock, family=family)
        with suppress(OSError):  # kernels before 5.0: every datagram comes alone
            sock.setsockopt(socket.SOL_UDP, syscalls.UDP_GRO, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def socket_id(address: Address) -> bytes:
    """Return what no other bound socket has at the same time, in the whole network, and this one again after a restart.

    That is the boot of this host, its network namespace, and the local address. Where there is no /proc it is random.
    """
    try:
        boot = BOOT_ID.read_text().strip()
        namespace = NETWORK_NAMESPACE.stat().st_ino
    except OSError:
        return os.urandom(16)
    return f"{boot} {namespace} {address!r}".encode()


def _enable_ecn(sock: socket.socket, *, family: socket.AddressFamily) -> None:
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT_0)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, ECT_0)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)


class Route(NamedTuple):
    """This host's route to an address."""

    mtu: int
    source_host: str
    """What the kernel takes as the source address for a socket that is bound to none."""


def route_to(address: Address, *, family: socket.AddressFamily) -> Route:
    """Return this host's route to `address`. Raises OSError when there is none."""
    level, option = socket.IPPROTO_IP, syscalls.IP_MTU
    if family == socket.AF_INET6:
        level, option = socket.IPPROTO_IPV6, syscalls.IPV6_MTU
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return Route(probe.getsockopt(level, option), canonical(probe.getsockname())[0])


def is_wildcard(host: str) -> bool:
    """Whether a socket bound to `host` has no address of its own: the kernel chooses the source of each packet."""
    return host in ("0.0.0.0", "::")  # noqa: S104 - not to bind it


class IcmpErrors(NamedTuple):
    """What ICMP said about the datagrams that a socket sent."""

    unreachable: list[Address]
    """The distinct destinations that answered "port unreachable"."""
    too_big: dict[Address, int]
    """The largest datagram in bytes, without IP and UDP headers, that passes on the way to a destination."""


def icmp_errors(sock: socket.socket) -> IcmpErrors:
    """Drain the socket's error queue."""
    unreachable: dict[Address, None] = {}
    too_big: dict[Address, int] = {}
    for _ in range(MAX_ERRORS):
        try:
            _, ancillary, _, address = sock.recvmsg(0, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except OSError:
            break
        for data in (data for _, _, data in ancillary if len(data) >= EXTENDED_ERROR.size):
            code, origin, mtu = EXTENDED_ERROR.unpack_from(data)
            if code == errno.ECONNREFUSED:
                unreachable[canonical(address)] = None
            elif code == errno.EMSGSIZE and origin in IP_UDP_BYTES_BY_ORIGIN:
                too_big[canonical(address)] = mtu - IP_UDP_BYTES_BY_ORIGIN[origin]
    return IcmpErrors(list(unreachable), too_big)


def dropped_packets(sock: socket.socket) -> int:
    """Return how many datagrams the kernel dropped because this socket's buffer was full."""
    info = sock.getsockopt(socket.SOL_SOCKET, syscalls.SO_MEMINFO, 36)
    return int(struct.unpack_from("=I", info, 4 * syscalls.MEMINFO_DROPS)[0])
