"""Socket addresses as text, and the scopes of link-local IPv6 addresses (RFC 4007), as in `fe80::1%eth0`.

Within this project an IPv6 address is (host, port, 0, scope id) without "%eth0" in its host, whatever its origin, so
that equivalent addresses compare equal. The flow label (third) does not belong to an address and is always 0.
"""

from __future__ import annotations

import socket

from srd.io.syscalls import Address


def split_zone(host: str) -> tuple[str, int]:
    """Split the zone (an interface's name or number) off; return host and scope id (0: none). Raises OSError."""
    address, percent, zone = host.partition("%")
    if not percent:
        return host, 0
    return address, int(zone) if zone.isascii() and zone.isdigit() else socket.if_nametoindex(zone)


def canonical(address: Address, *, scope: int = 0) -> Address:
    """Return an address of the socket module in canonical form. `scope` applies if the address has none."""
    if len(address) == 2:
        return address
    host, port, _, own_scope = address
    return host.partition("%")[0], port, 0, own_scope or scope


def host_text(address: Address) -> str:
    """Return the host of an address, with the interface of a link-local one."""
    if len(address) == 2 or not address[3]:
        return address[0]
    try:
        zone = socket.if_indextoname(address[3])
    except OSError:  # the interface was removed
        zone = str(address[3])
    return f"{address[0]}%{zone}"
