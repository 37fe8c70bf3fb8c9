"""Hosts of the tunnel's tests: nameless network namespaces, each with TUN interfaces that the test holds.

A namespace ends with its last interface and socket, so that nothing is left of it whatever happens to the test.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import socket
import struct
import subprocess
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from netns.backends.relay.tap import in_nameless_namespace
from srd.tunnel import tun as device
from srd.tunnel.packets import parse_untrusted
from srd.tunnel.tun import NO_OFFLOAD, Offload
from srd.tunnel.vnet import HEADER_BYTES
from tests.patience import PATIENCE_S, wait_until

# linux/sockios.h, linux/ethtool.h
SIOCETHTOOL: Final = 0x8946
ETHTOOL_GLINK: Final = 0x0000000A

_READ_BYTES: Final = HEADER_BYTES + 65_536


@dataclass(slots=True)
class Tun:
    """A TUN interface with IFF_VNET_HDR: what is read and written has 10 bytes before the packet."""

    name: str
    networks: tuple[str, ...]
    """Its addresses, with the length of their prefix."""
    offload: Offload = NO_OFFLOAD
    mtu: int = 1500
    fd: int = -1

    def create(self) -> None:
        """Make the interface in the calling thread's namespace."""
        (self.fd,) = device.Tun.open(self.name, offload=self.offload).fds
        for network in self.networks:
            options = ("nodad",) if ":" in network else ()
            subprocess.run(["ip", "address", "add", network, "dev", self.name, *options], check=True)
        subprocess.run(["ip", "link", "set", self.name, "mtu", str(self.mtu), "up"], check=True)
        self._see_carrier()
        for network in self.networks:
            if ":" in network:
                _await_local_route(network.partition("/")[0])

    def _see_carrier(self) -> None:
        """Have the kernel's link watch run: until then the interface drops all that is sent."""
        value = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_GLINK, 0))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sP16x", self.name.encode(), ctypes.addressof(value)))

    def read_waiting(self) -> list[bytes]:
        """Return what the kernel has handed over, each with its virtio_net_hdr."""
        found = []
        try:
            while True:
                found.append(os.read(self.fd, _READ_BYTES))
        except BlockingIOError:
            return found

    def read_from(self, source: str, *, count: int) -> list[bytes]:
        """Return the next packets of one sender, after waiting for them. The kernel sends others of its own."""
        address, found = ip_address(source).packed, list[bytes]()
        while len(found) < count:
            assert select.select([self.fd], [], [], PATIENCE_S)[0], f"{len(found)} of {count} packets"
            packets = [data[HEADER_BYTES:] for data in self.read_waiting()]
            found += [packet for packet in packets if parse_untrusted(packet).source == address]
        return found

    def write(self, header: bytes, packet: bytes | memoryview) -> None:
        """Hand a packet to the kernel, which handles it before this returns."""
        os.write(self.fd, header + packet)


@dataclass(slots=True)
class Host:
    """A namespace with TUN interfaces and sockets, for the block."""

    tuns: tuple[Tun, ...]
    sysctls: dict[str, int] = field(default_factory=dict)
    sockets: tuple[socket.socket, ...] = ()
    _statistics: list[int] = field(default_factory=list)

    def open(self, *sockets: tuple[socket.AddressFamily, socket.SocketKind]) -> Self:
        """Make the namespace, and sockets in it."""
        in_nameless_namespace(lambda: self._make(sockets))
        return self

    def _make(self, sockets: tuple[tuple[socket.AddressFamily, socket.SocketKind], ...]) -> None:
        for name, value in self.sysctls.items():
            Path("/proc/sys/net", name).write_text(f"{value}\n")
        for tun in self.tuns:
            tun.create()
        self.sockets = tuple(socket.socket(family, kind) for family, kind in sockets)
        for name in ("snmp", "netstat", "snmp6"):
            self._statistics.append(os.open(f"/proc/thread-self/net/{name}", os.O_RDONLY | os.O_CLOEXEC))

    def counters(self) -> dict[str, int]:
        """Return the namespace's counters, as /proc/net/snmp, netstat and snmp6 have them: Tcp.InErrs, Udp6InErrors."""
        snmp, netstat, snmp6 = (os.pread(fd, 1 << 16, 0).decode() for fd in self._statistics)
        lines = snmp.splitlines() + netstat.splitlines()
        found = {name: int(value) for name, value in (line.split() for line in snmp6.splitlines())}
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            group, *columns = names.split()
            found |= {
                f"{group[:-1]}.{name}": int(value) for name, value in zip(columns, values.split()[1:], strict=True)
            }
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in self.sockets:
            sock.close()
        for fd in (*self._statistics, *(tun.fd for tun in self.tuns)):
            os.close(fd)


def _await_local_route(address: str) -> None:
    """Wait until the kernel takes packets to an IPv6 address that it was given, which it does in a work queue."""
    entry = f"{ip_address(address).packed.hex()} 80 "
    routes = Path("/proc/thread-self/net/ipv6_route")
    wait_until(lambda: any(line.startswith(entry) for line in routes.read_text().splitlines()))
