"""GIDs: the 16 bytes by which a device is addressed, made from the address of the card's UDP endpoint.

IPv4: fe80 | UDP port | 6 zero bytes | ffff | IPv4 address, all in network byte order. It has the form of a link-local
address, as EFA's own GIDs have. IPv6: the address itself; the port is fixed, as there is no room for one.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from nitro_emu.errors import AbiError

GID_BYTES: Final = 16
"""The size of a GID."""
IPV6_PORT: Final = 19875
"""The UDP port of every card that is reached over IPv6."""

_LINK_LOCAL: Final = bytes.fromhex("fe80")
_IPV4_MARK: Final = bytes(6) + bytes.fromhex("ffff")


def gid_of(host: str, *, port: int) -> bytes:
    """Return the GID of the card whose endpoint has this numeric address and UDP port.

    Raises AbiError for a host name, an address that cannot be a peer's, or a port that the GID cannot express.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise AbiError(f"host: {host!r} is neither an IPv4 nor an IPv6 address", field="host") from error
    if isinstance(address, ipaddress.IPv4Address):
        if not 0 < port <= 0xFFFF:
            raise AbiError(f"port: {port} is no UDP port (1 to 65535)", field="port")
        gid = _LINK_LOCAL + port.to_bytes(2, "big") + _IPV4_MARK + address.packed
    else:
        if port != IPV6_PORT:
            raise AbiError(f"port: {port} does not fit into an IPv6 GID; use {IPV6_PORT}", field="port")
        gid = address.packed
    if address_of_untrusted(gid) != (str(address), port):
        raise AbiError(f"host: {host!r} has the form of another address's GID", field="host")
    return gid


def address_of_untrusted(gid: bytes) -> tuple[str, int]:
    """Return the numeric address and the UDP port of a GID. Raises AbiError if it is not that of a single peer."""
    if len(gid) != GID_BYTES:
        raise AbiError(f"gid: {len(gid)} bytes instead of {GID_BYTES}", field="gid")
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    if gid[:2] == _LINK_LOCAL and gid[4:12] == _IPV4_MARK:
        address, port = ipaddress.IPv4Address(gid[12:]), int.from_bytes(gid[2:4], "big")
        usable = port > 0 and address != ipaddress.IPv4Address("255.255.255.255")
    else:
        address, port = ipaddress.IPv6Address(gid), IPV6_PORT
        usable = not address.is_link_local and address.ipv4_mapped is None
    if not usable or address.is_multicast or address.is_unspecified:
        raise AbiError(f"gid: {gid_text(gid)} is not the GID of a peer", field="gid")
    return str(address), port


def gid_text(gid: bytes) -> str:
    """Return a GID as eight groups of four hexadecimal digits, as sysfs and pyverbs show it."""
    return gid.hex(":", 2)
