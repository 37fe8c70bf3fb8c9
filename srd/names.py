"""The addresses of a host's name, and which of them a socket can send to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import Final, cast

from srd.errors import SrdError
from srd.io.addresses import canonical, split_zone
from srd.io.syscalls import Address

Resolved = tuple[socket.AddressFamily, Address]
MAPPED: Final = "::ffff:"
"""Before an IPv4 address that a socket of IPv6 sends to (RFC 4291, section 2.5.5.2)."""


async def resolve(host: str, *, port: int, passive: bool) -> list[Resolved]:
    """Return the addresses of `host`, the best first (RFC 6724); one may be link-local (fe80::1%eth0).

    The families take turns, as RFC 8305, section 4, wants it. Raises SrdError naming the host.
    """
    try:
        name, scope = split_zone(host)  # uvloop drops the zone
    except OSError as error:
        raise SrdError(f"{host}: no such interface; `ip link` lists them") from error
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            name or None, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE if passive else 0
        )
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, socket.gaierror) else "not a name"
        raise SrdError(f"{host}: unknown host ({why}); check the name or give an address") from error
    addresses = [
        (socket.AddressFamily(family), canonical(cast("Address", address), scope=scope))
        for family, _, _, _, address in found
    ]
    return list(dict.fromkeys(_in_turns(addresses)))


def _in_turns(addresses: Sequence[Resolved]) -> Iterator[Resolved]:
    first = [each for each in addresses if each[0] == addresses[0][0]]
    others = [each for each in addresses if each[0] != addresses[0][0]]
    return (each for each in chain.from_iterable(zip_longest(first, others)) if each is not None)


def reachable(addresses: Sequence[Resolved], *, family: socket.AddressFamily) -> list[Address]:
    """Return those that a socket of a family can send to, as it wants them: one of IPv6 sends to IPv4, too."""
    if family == socket.AF_INET:
        return [address for own, address in addresses if own == family]
    return [address if own == family else (f"{MAPPED}{address[0]}", address[1], 0, 0) for own, address in addresses]
