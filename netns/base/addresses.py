"""HOST[:PORT], read and written: an IPv6 address with a port has brackets. And the address of this host for others."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from typing import Final

ANYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared, not bound
"""What stands for all addresses of a host."""
_SIOCGIFADDR: Final = 0x8915
_SOMEWHERE: Final = ("192.0.2.1", 9)
"""An address of no host (RFC 5737): which of our own addresses a route beyond this network takes."""


def parse_host_port(text: str, *, example_port: int) -> tuple[str, int]:
    """Return host and port. Raises ValueError with one line, which names `example_port` in its example."""
    host, colon, port = text.rpartition(":")
    number = _port(port)
    if not colon or number is None:
        raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to 65535, such as 192.0.2.1:{example_port}")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"{text!r}: put an IPv6 address in brackets, such as [::1]:{example_port}")
    return host.removeprefix("[").removesuffix("]"), number


def parse_target(text: str, *, default_port: int, example_port: int) -> tuple[str, int]:
    """Return host and port of HOST[:PORT]; an IPv6 address needs no brackets if no port follows. Raises ValueError."""
    if is_ipv6(text):
        return text, default_port
    if text.startswith("[") and text.endswith("]") and is_ipv6(text[1:-1]):
        return text[1:-1], default_port
    if text and not text.isdigit() and not {*text} & {*":[]"}:  # 19870 alone is a port that lacks its host
        return text, default_port
    try:
        return parse_host_port(text, example_port=example_port)
    except ValueError as error:
        raise ValueError(str(error).replace("HOST:PORT with", "HOST, or HOST:PORT with")) from None


def _port(text: str) -> int | None:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else -1
    return number if 0 <= number <= 65535 else None


def is_ipv6(text: str) -> bool:
    """Whether it is an IPv6 address, which may have a zone (fe80::1%eth0), without brackets."""
    address, percent, zone = text.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return bool(zone) or not percent


def host_port_text(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reached_at(host: str) -> str:
    """Return an address by which others reach what listens at `host`: itself, unless that stands for all addresses.

    A name of this host would be of no use where nobody resolves it. So it is the address of the route to other
    networks, or else the first one that is no loopback's, or else loopback's. No packet is sent.
    """
    if host not in ANYWHERE:
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_SOMEWHERE)
            return str(probe.getsockname()[0])
        except OSError:  # no route leads out of this network
            found = [_ipv4_of(probe, name) for _, name in socket.if_nameindex()]
    return next((each for each in found if each and not each.startswith("127.")), "127.0.0.1")


def _ipv4_of(probe: socket.socket, interface: str) -> str:
    """Return an interface's first IPv4 address; empty if it has none (netdevice(7))."""
    request = struct.pack("256s", interface.encode()[:15])
    try:
        return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24])
    except OSError:
        return ""
