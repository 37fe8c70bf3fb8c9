"""Which addresses may be behind which peer, and which peer an address is behind (WireGuard's AllowedIPs).

The file of the peers has a line for each: its public key as `srd keygen` prints it, and its addresses and networks.

    srd-x25519 2bZ... 10.88.0.2,fd88::2,10.1.0.0/16

A peer that is not in the file is refused. Without a file whoever may open a peer may use one address for each of the
interface's networks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from srd.errors import UsageError
from srd.secure.config import Identity
from srd.secure.keys import parse_public, trusted_lines
from srd.tunnel.greeting import Address, Network, OwnAddress

MAX_CACHED: Final = 65_536
"""Addresses whose peer is remembered; then all are forgotten."""

Peer = TypeVar("Peer", bound=Hashable)


def host_network(address: Address) -> Network:
    """Return the network of one address."""
    return ipaddress.ip_network(address)


def is_within(network: Network, other: Network) -> bool:
    """Whether a network is a part of another, or the same."""
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(other, ipaddress.IPv4Network) and network.subnet_of(other)
    return isinstance(other, ipaddress.IPv6Network) and network.subnet_of(other)


def read_peers(path: Path) -> dict[bytes, tuple[Network, ...]]:
    """Return the networks of each public key in a file. Raises UsageError."""
    try:
        lines = trusted_lines(path)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; make it with a line for each peer: KEY ADDRESS,...") from error
    found: dict[bytes, tuple[Network, ...]] = {}
    for number, line in lines:
        key_text, _, networks = line.rstrip().rpartition(" ")
        try:
            key = parse_public(key_text)
            found[key] = tuple(ipaddress.ip_network(each) for each in networks.split(","))
        except (UsageError, ValueError) as invalid:
            raise UsageError(f"{path}, line {number}: {invalid}; a line is: srd-x25519 KEY ADDRESS,...") from invalid
    return found


class AddressPolicy:
    """Decides which addresses a peer may use; see the module."""

    def __init__(
        self,
        own: Sequence[OwnAddress],
        *,
        peers: Mapping[bytes, Sequence[Network]] | None,
    ) -> None:
        """`own`: the interface's addresses; `peers`: networks by public key, None: any peer may come."""
        self._own = own
        self._peers = peers

    def networks_untrusted(self, identity: Identity, wanted: Sequence[Address]) -> Sequence[Network] | str:
        """Return the networks behind a peer that asks for these addresses, or why it is refused."""
        if self._peers is not None:
            networks = self._peers.get(identity.public_key)
            if networks is None:
                return "this key is not among the listener's peers"
            outside = [each for each in wanted if not any(each in network for network in networks)]
            return f"{outside[0]} is not an address of this key" if outside else networks
        for address in wanted:
            if not any(address in own.network and address != own.ip for own in self._own):
                return f"{address} is not a free address of {', '.join(str(own.network) for own in self._own)}"
        if len({address.version for address in wanted}) < len(wanted):
            return "more than one address of a kind; name the peer's addresses in the file of --peers"
        return [host_network(each) for each in wanted]


class AllowedAddresses(Generic[Peer]):
    """Finds the peer that an address is behind: the one with the longest network that contains it."""

    def __init__(self) -> None:
        self._networks: dict[Network, Peer] = {}
        self._ordered: list[tuple[Network, Peer]] = []  # longest first
        self._cached: dict[bytes, Peer | None] = {}

    def add(self, peer: Peer, networks: Iterable[Network]) -> None:
        """Put networks behind a peer, and away from the one that had them."""
        self._networks.update(dict.fromkeys(networks, peer))
        self._changed()

    def remove(self, peer: Peer) -> None:
        """Remove all that is behind a peer."""
        self._networks = {network: other for network, other in self._networks.items() if other != peer}
        self._changed()

    def user(self, network: Network) -> Peer | None:
        """Return the peer that exactly this network was put behind; None: there is none."""
        return self._networks.get(network)

    def _changed(self) -> None:
        self._ordered = sorted(self._networks.items(), key=lambda item: -item[0].prefixlen)
        self._cached.clear()

    def find(self, address: bytes) -> Peer | None:
        """Return the peer of an address, given as 4 or 16 bytes; None: there is none."""
        try:
            return self._cached[address]
        except KeyError:
            return self._look_up(address)

    def _look_up(self, address: bytes) -> Peer | None:
        where = ipaddress.ip_address(address)
        found = next((peer for network, peer in self._ordered if where in network), None)
        if len(self._cached) >= MAX_CACHED:
            self._cached.clear()
        self._cached[address] = found
        return found
