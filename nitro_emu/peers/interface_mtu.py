"""The MTU of the network interface that has an address."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Final

_SIOCGIFADDR: Final = 0x8915
_SIOCGIFMTU: Final = 0x8921
_IFREQ: Final = struct.Struct("16s24x")
_NAME_BYTES: Final = 16
_ADDRESS_AT: Final = 20
"""Of the IPv4 address in an ifreq: behind the name, the family and the port of a sockaddr_in."""


def interface_mtu(host: str) -> int | None:
    """Return the MTU of the interface with this address; None if no interface has it as its first address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        names = [name for _, name in socket.if_nameindex()]
        for name in _names_of_ipv6(host) if ":" in host else names:
            if ":" in host or _ipv4_of(sock, name) == host:
                return int(struct.unpack_from("=i", _ioctl(sock, _SIOCGIFMTU, name), _NAME_BYTES)[0])
    return None


def _ioctl(sock: socket.socket, request: int, name: str) -> bytes:
    return fcntl.ioctl(sock, request, _IFREQ.pack(name.encode()))


def _ipv4_of(sock: socket.socket, name: str) -> str | None:
    try:
        answer = _ioctl(sock, _SIOCGIFADDR, name)
    except OSError:  # it has none
        return None
    return socket.inet_ntoa(answer[_ADDRESS_AT : _ADDRESS_AT + 4])


def _names_of_ipv6(host: str) -> list[str]:
    wanted = ipaddress.ip_address(host).packed.hex()
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:  # the kernel has no IPv6
        return []
    return [fields[5] for fields in map(str.split, lines) if fields[0] == wanted]
