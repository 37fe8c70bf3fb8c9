"""Incoming peers that are not confirmed: whose place another one may take when there is no room.

To make such a peer costs its initiator two packets and no key that anybody accepts, and it keeps its place for
`CONFIRM_S`. So one host, or one network, could keep all others out. Where there is no room, a host that has fewer of
them than another takes the place of the other's oldest one. Honest initiators confirm within a round trip, and so keep
theirs.

1. Networks (`network_of`) are compared first, as a host may have all addresses of one: the place is taken from the one
   with the most peers that are not confirmed. Within a network, hosts are.
2. A host that has as many as any other is refused, before its handshake has cost anything.
"""

from __future__ import annotations

from typing import Any

from srd.proto.wire.data import Address, host_of, network_of


class Unconfirmed:
    """The numbers of these peers, by network and host, the oldest first."""

    __slots__ = ("_networks", "_places")

    def __init__(self) -> None:
        self._places: dict[int, Address] = {}  # by number
        self._networks: dict[Any, dict[Any, dict[int, None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def add(self, number: int, *, address: Address) -> None:
        """Add a peer."""
        self._places[number] = address
        self._networks.setdefault(network_of(address), {}).setdefault(host_of(address), {})[number] = None

    def discard(self, number: int) -> None:
        """Remove a peer, if it is here."""
        address = self._places.pop(number, None)
        if address is None:
            return
        network, host = network_of(address), host_of(address)
        hosts = self._networks[network]
        del hosts[host][number]
        if not hosts[host]:
            del hosts[host]
        if not hosts:
            del self._networks[network]

    def displaced_by(self, address: Address) -> int | None:
        """Return the peer whose place one from `address` may take; None: it is refused."""
        if not self._networks:
            return None
        own_network, own_host = network_of(address), host_of(address)
        network = max(self._networks, key=self._held_by)
        if self._held_by(network) <= self._held_by(own_network):
            network = own_network
        hosts = self._networks[network]
        host = max(hosts, key=lambda host: len(hosts[host]))
        if network == own_network and len(hosts[host]) <= len(hosts.get(own_host, ())):
            return None
        return next(iter(hosts[host]))

    def _held_by(self, network: Any) -> int:
        return sum(map(len, self._networks.get(network, {}).values()))
