"""Whom a virtual function may talk to, and where others are: without VPCs, or by the control plane's mapping.

Both directions are checked against the mapping. The sender's card looks a destination up when an address handle is
made and when a peer is opened. The receiver's card checks that a HELLO comes from the card that has the source's
address: by the key that the handshake has proven, and by the host that the packets come from. So no tenant, and no card
for a tenant of another, can use an address that is not its own. `VpcNetwork` tells its virtual functions of each new
mapping, and they end what it allows no more.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from nitro_emu.errors import AbiError, VpcError
from nitro_emu.gid import IPV6_PORT, address_of_untrusted, gid_of, gid_text
from nitro_emu.peers.introduction import VfHello
from nitro_emu.peers.mapping import VpcNetwork
from nitro_emu.vpc.flows import Begin
from nitro_emu.vpc.rules import Direction, Mapping, VpcInterface


class OtherMappingError(VpcError):
    """A peer claims what its mapping may have and this card's has not: the two have different versions."""


class ForgeryError(VpcError):
    """A peer claims to be who it is not, which no card does whose tenants only use their queues."""


class VfAddress(NamedTuple):
    """Where a GID is in the network between cards."""

    host: str
    port: int
    public_key: bytes | None = None
    """The key that the card there must have; None: whatever the virtual function's own setting of security accepts."""
    vpc_id: int = 0
    """Of this end, which it is reached from; 0: none."""
    map_version: int = 0
    """Of the mapping by which it was found; 0: none."""

    @property
    def place(self) -> tuple[str, int, bytes | None]:
        """Where it is, by whatever mapping."""
        return self.host, self.port, self.public_key


@dataclass(slots=True)
class TenancyCounters:
    """Packets never count here: what is denied is a peer, or an address handle."""

    tx_denied: int = 0
    """Address handles and peers that the mapping or the groups did not allow."""
    rx_denied: int = 0
    """Peers of others that they did not allow."""
    rx_forged: int = 0
    """Peers of others with an address, a VPC or a destination that is not theirs to name."""
    revoked: int = 0
    """Open peers that a new mapping allowed no more."""


class Tenancy(Protocol):
    """What a virtual function knows of the network that its tenant sees."""

    gid: bytes
    """Its own GID."""
    counters: TenancyCounters
    """What was refused."""

    def destination(self, gid: bytes) -> VfAddress:
        """Return where a GID is. Raises VpcError if it is nowhere, or not allowed."""

    def check_source(self, hello: VfHello, *, host: str, public_key: bytes) -> None:
        """Raise VpcError unless the card at `host`, with this key, may send what the HELLO announces."""


class OpenTenancy:
    """No VPC: a GID is the address of a card, and everybody may talk to everybody."""

    def __init__(self, address: str, *, port: int) -> None:
        """Take the address of the virtual function. Raises AbiError for one that no GID can have."""
        self.gid = gid_of(address, port=port)
        self.counters = TenancyCounters()
        self._is_ipv6 = ":" in address

    def destination(self, gid: bytes) -> VfAddress:
        """Return the address that the GID is made of. Raises VpcError for another address family."""
        try:
            host, port = address_of_untrusted(gid)
        except AbiError as error:
            raise VpcError(str(error)) from None
        if (":" in host) is not self._is_ipv6:
            raise VpcError(f"gid: {host} is of another address family than this device")
        return VfAddress(host, port)

    def check_source(self, hello: VfHello, *, host: str, public_key: bytes) -> None:
        """Raise VpcError unless the source's GID is of the host that its packets come from."""
        del public_key
        try:
            named, _ = address_of_untrusted(hello.source)
        except AbiError as error:
            raise ForgeryError(str(error)) from None
        if named != host or hello.vpc_id:
            raise ForgeryError(f"a peer from {host} says that it is {named}")


class VpcTenancy:
    """A virtual function that is an interface in a VPC."""

    def __init__(self, network: VpcNetwork, *, vpc: str, private_address: str, port: int, public_key: bytes) -> None:
        """`port`: the UDP port of the virtual function, `public_key`: the card's, as the mapping must have them."""
        self.gid = gid_of(private_address, port=IPV6_PORT)
        self._public_key = public_key
        self.counters = TenancyCounters()
        self._network = network
        self._vpc = vpc
        self._private_address = private_address
        self._port = port

    def _own(self, mapping: Mapping) -> VpcInterface:
        own = mapping.find(self._vpc, self._private_address)
        if own is None:
            raise VpcError(f"{self._private_address} is no interface of VPC {self._vpc} in the mapping")
        if (own.card.name, own.port) != (self._network.card, self._port):
            raise VpcError(f"{own} is on {own.card.name} port {own.port} in the mapping, not on this card")
        if own.card.public_key != self._public_key:
            raise VpcError(
                f"{own.card.name} has another key in the mapping than here; every other card refuses this one"
            )
        return own

    def destination(self, gid: bytes) -> VfAddress:
        """Return where the mapping has the GID. Raises VpcError, also while there is no mapping that is valid."""
        mapping = self._network.mapping()
        own = self._own(mapping)
        there = mapping.destination(own, gid)
        if there is None:
            raise VpcError(f"{gid_text(gid)} is no interface that {own} can reach")
        if (refusal := self._refusal(mapping, own, there)) is not None:
            raise VpcError(f"{own} to {there}: {refusal}")
        return VfAddress(there.card.address, there.port, there.card.public_key, own.vpc_id, mapping.version)

    def check_source(self, hello: VfHello, *, host: str, public_key: bytes) -> None:
        """Raise ForgeryError unless the source is an interface of that card, VpcError if it may not send here.

        OtherMappingError instead of the former, if the peer's card goes by another mapping, as while one is pushed.
        """
        mapping = self._network.mapping()
        try:
            self._check_source(hello, mapping=mapping, host=host, public_key=public_key)
        except ForgeryError as error:
            if hello.map_version in {0, mapping.version}:
                raise
            text = f"{error} (by mapping {hello.map_version}; this card has {mapping.version})"
            raise OtherMappingError(text) from None

    def _check_source(self, hello: VfHello, *, mapping: Mapping, host: str, public_key: bytes) -> None:
        own = self._own(mapping)
        source = mapping.by_encapsulation(hello.vpc_id, hello.source)
        if source is None:
            raise ForgeryError(f"a peer from {host} names {gid_text(hello.source)} in VPC {hello.vpc_id}: no interface")
        if source.card.public_key != public_key or source.card.address != host:
            raise ForgeryError(f"a peer from {host} says that it is {source}, which is at {source.card.address}")
        if hello.destination != self.gid:
            raise ForgeryError(f"{source} sends to {gid_text(hello.destination)}, which is not at this port")
        if (refusal := self._refusal(mapping, source, own)) is not None:
            raise VpcError(f"{source} to {own}: {refusal}")

    def _refusal(self, mapping: Mapping, source: VpcInterface, destination: VpcInterface) -> str | None:
        """Return why there may be no peer."""
        return mapping.refusal(source, destination)


class PacketTenancy(VpcTenancy):
    """An interface whose packets are judged by the rules, flow by flow; a peer only needs a way there."""

    def _refusal(self, mapping: Mapping, source: VpcInterface, destination: VpcInterface) -> str | None:
        return mapping.unreachable(source, destination)

    @property
    def rules_version(self) -> int:
        """Of the mapping that flows are judged by; 0: there is none. An expired one still counts for what is open."""
        return self._network.rules_version

    def flow_refusal(self, begin: Begin) -> str | None:
        """Return why a flow may not begin: a counter's name; None: it may."""
        try:
            mapping = self._network.mapping()
            own = self._own(mapping)
        except VpcError:
            return "no_mapping"
        try:
            peer = mapping.destination(own, gid_of(str(ipaddress.ip_address(begin.peer)), port=IPV6_PORT))
        except AbiError:  # multicast, for example
            return "no_interface"
        if peer is None or mapping.unreachable(own, peer) is not None:
            return "no_interface"
        direction: Direction = "egress" if begin.is_outbound else "ingress"
        allowed = mapping.permits(own, direction, peer, protocol=begin.protocol, port=begin.port)
        return None if allowed else "security_group"
