"""Who may talk to whom: a map with indexes, and the rules of VPCs and of EFA. No I/O.

EFA traffic from one interface to another needs all of these; `Mapping.refusal` names the first that is missing.
1. Both cards are in one region.
2. Both interfaces are in one VPC, or in two that are peered.
3. A group of the source has an egress rule with protocol all that names the destination, and a group of the
   destination has an ingress rule with protocol all that names the source; by group or by private address.
4. EFA's prerequisite: each of the two has a group that allows all to and from itself.

Rules only allow: what none allows is refused. They are stateful: an answer needs no rule, so a caller asks once, with
the side that begins as the source. Rules for tcp, udp, icmp and icmpv6 say nothing about EFA traffic; `Mapping.allows`
goes by them, and `Mapping.permits`, which asks for one of the two ends.

When traffic is encrypted. AWS encrypts between instances if both are of capable types, in the same region, in the same
VPC or in peered ones, and no load balancer or transit gateway is between; else it is carried as plaintext:

    capable  region   VPC          middlebox    AWS          here
    both     same     same, peered  none        encrypted    encrypted
    one      any      any           any         plaintext    not carried (a card without a key is not in the map)
    both     other    any           any         plaintext    not carried (refusal: region)
    both     same     not peered    any         not carried  not carried (refusal: peering)
    both     same     same, peered  any         plaintext    not carried (keys are of pairs of cards; none has it)

So here the answer is: encrypted, or not carried. (Real EFA traffic does not cross VPCs at all. Peered VPCs are carried
here, as the whitepaper's table has them.)
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from nitro_emu.gid import IPV6_PORT, gid_of
from nitro_emu.vpc.fields import Network
from nitro_emu.vpc.model import GroupFields, RuleFields, VpcFields, VpcMap, group_of

MAX_CACHED_PAIRS: Final = 1 << 16
"""Answers of `refusal` that are kept, 10 MB at most: a card has 256 VFs, and each some hundred peers."""

Direction = Literal["ingress", "egress"]

ALL_PORTS: Final = (0, 65535)

GroupName = tuple[str, str]
"""VPC and name of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedCard:
    """A card: its address between cards, and its public X25519 key (32 bytes)."""

    name: str
    address: str
    public_key: bytes
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VpcInterface:
    """A tenant's interface: a private address in a VPC, and the card and UDP port at which it is."""

    name: str
    vpc: str
    vpc_id: int
    address: str
    groups: tuple[str, ...]
    card: MappedCard
    port: int
    gid: bytes = field(init=False, compare=False, repr=False)
    """Of the private address, 16 bytes: what the tenant addresses it by. Its port is always IPV6_PORT."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "gid", gid_of(self.address, port=IPV6_PORT))

    def __str__(self) -> str:
        """Return VPC and name."""
        return f"{self.vpc}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """A rule whose peers are a group (VPC and name), or a range of addresses."""

    protocol: str
    ports: tuple[int, int]
    group: GroupName | None
    network: Network | None

    @classmethod
    def of(cls, fields: RuleFields, *, vpc: str) -> _Rule:
        group = None if fields.group is None else group_of(fields.group, vpc=vpc)
        network = None if fields.cidr is None else ipaddress.ip_network(fields.cidr)
        return cls(protocol=fields.protocol, ports=fields.port_range, group=group, network=network)

    def names(self, peer: VpcInterface) -> bool:
        if self.group is not None:
            return self.group[0] == peer.vpc and self.group[1] in peer.groups
        return self.network is not None and ipaddress.ip_address(peer.address) in self.network

    def __str__(self) -> str:
        peers = str(self.network) if self.group is None else f"group {'/'.join(self.group)}"
        low, high = self.ports
        ports = ""
        if self.protocol in {"tcp", "udp"}:
            ports = f" ports {low}-{high}"
        elif self.ports != ALL_PORTS:
            ports = f" type {low}"
        return f"{self.protocol}{ports} with {peers}"

    def covers(self, protocol: str, *, port: int | None) -> bool:
        if self.protocol == "all":
            return True
        if self.protocol != protocol:
            return False
        low, high = self.ports
        return self.ports == ALL_PORTS or (port is not None and low <= port <= high)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    name: str
    ingress: tuple[_Rule, ...]
    egress: tuple[_Rule, ...]
    allows_itself: bool
    """Whether it allows all to and from itself, as EFA demands."""

    @classmethod
    def of(cls, fields: GroupFields, *, vpc: str, name: str) -> _Group:
        ingress = tuple(_Rule.of(each, vpc=vpc) for each in fields.ingress)
        egress = tuple(_Rule.of(each, vpc=vpc) for each in fields.egress)
        allows_itself = all(
            any(rule.protocol == "all" and rule.group == (vpc, name) for rule in rules) for rules in (ingress, egress)
        )
        return cls(name=name, ingress=ingress, egress=egress, allows_itself=allows_itself)

    def rules(self, direction: Direction) -> tuple[_Rule, ...]:
        return self.egress if direction == "egress" else self.ingress


class Mapping:
    """A map with indexes. It does not change; another map is a new one, the same in a new version is not."""

    def __init__(self, vpc_map: VpcMap, *, version: int) -> None:
        self.map = vpc_map
        self.version = version
        """That it was last sent with."""
        self.rules_version = version
        """That it was first sent with, so what was judged by that one holds."""
        self.cards = {
            name: MappedCard(name=name, address=card.address, public_key=card.key, region=card.region)
            for name, card in vpc_map.cards.items()
        }
        self.card_keys = frozenset(card.public_key for card in self.cards.values())
        """The public keys of all cards: a peer with another one is no card."""
        self.interfaces = tuple(
            each for name, fields in vpc_map.vpcs.items() for each in self._interfaces_of(fields, vpc=name)
        )
        """All interfaces, in the map's order."""
        self._by_address = {(each.vpc, each.address): each for each in self.interfaces}
        self._by_gid = {(each.vpc_id, each.gid): each for each in self.interfaces}
        self._groups = {
            (vpc, name): _Group.of(group, vpc=vpc, name=name)
            for vpc, fields in vpc_map.vpcs.items()
            for name, group in fields.groups.items()
        }
        self._peered_ids = _peered_ids(vpc_map)
        self._refusals: dict[tuple[int, bytes, int, bytes], str | None] = {}
        self._named: dict[tuple[str, str, Direction, str, str], tuple[_Rule, ...]] = {}  # by own, direction, and peer

    def _interfaces_of(self, fields: VpcFields, *, vpc: str) -> Iterator[VpcInterface]:
        for name, each in fields.interfaces.items():
            yield VpcInterface(
                name=name,
                vpc=vpc,
                vpc_id=fields.id,
                address=each.address,
                groups=each.groups,
                card=self.cards[each.card],
                port=each.port,
            )

    def find(self, vpc: str, address: str) -> VpcInterface | None:
        """Return the interface with a private address in a VPC, or None."""
        found = self._by_address.get((vpc, address))
        if found is None and ":" in address:  # IPv6 addresses have several forms
            try:
                return self._by_address.get((vpc, str(ipaddress.ip_address(address))))
            except ValueError:
                return None
        return found

    def destination(self, source: VpcInterface, gid: bytes) -> VpcInterface | None:
        """Return the interface that a source means by a GID: of its own VPC, else of one that is peered, else None."""
        own = self._by_gid.get((source.vpc_id, gid))
        if own is not None:
            return own
        for vpc_id in self._peered_ids.get(source.vpc_id, ()):
            if (found := self._by_gid.get((vpc_id, gid))) is not None:
                return found
        return None

    def by_encapsulation(self, vpc_id: int, gid: bytes) -> VpcInterface | None:
        """Return the interface that a frame between cards names by VPC id and GID, or None."""
        return self._by_gid.get((vpc_id, gid))

    def refusal(self, source: VpcInterface, destination: VpcInterface) -> str | None:
        """Return why EFA traffic from source to destination is refused; None: it is allowed.

        The text names interfaces and groups of both tenants: it is for the card's log, not for the other tenant.
        """
        for each in (source, destination):  # an older map's, perhaps
            if (mine := self._by_gid.get((each.vpc_id, each.gid))) is not each and mine != each:
                return f"map: {each} ({each.address}) is not in version {self.version} of the map"
        key = (source.vpc_id, source.gid, destination.vpc_id, destination.gid)
        try:
            return self._refusals[key]
        except KeyError:
            pass
        if len(self._refusals) >= MAX_CACHED_PAIRS:
            self._refusals.clear()
        reason = self._refusals[key] = self._reason(source, destination)
        return reason

    def permits(
        self, own: VpcInterface, direction: Direction, peer: VpcInterface, *, protocol: str, port: int | None = None
    ) -> bool:
        """Whether a rule of `own` allows this traffic to (egress) or from (ingress) a peer; see `allows`.

        The rules that name the peer are remembered, so that a flood of packets costs little for each.
        """
        key = (own.vpc, own.name, direction, peer.vpc, peer.name)
        if (rules := self._named.get(key)) is None:
            if len(self._named) >= MAX_CACHED_PAIRS:
                self._named.clear()
            rules = self._named[key] = tuple(
                rule for group in self._groups_of(own) for rule in group.rules(direction) if rule.names(peer)
            )
        return any(rule.covers(protocol, port=port) for rule in rules)

    def grounds(self, source: VpcInterface, destination: VpcInterface) -> tuple[str, ...]:
        """Return by what EFA traffic that is allowed is allowed, as lines; none if it is refused."""
        if self.refusal(source, destination) is not None:
            return ()
        rules = self._match(source, "egress", destination), self._match(destination, "ingress", source)
        selves = (
            f"EFA's rule: {each} has group {group.name}, which allows all to and from itself"
            for each in dict.fromkeys((source, destination))
            for group in [next(group for group in self._groups_of(each) if group.allows_itself)]
        )
        return (*(line for line in rules if line is not None), *selves)

    def _reason(self, source: VpcInterface, destination: VpcInterface) -> str | None:
        if (reason := self.unreachable(source, destination)) is not None:
            return reason
        if self._match(source, "egress", destination) is None:
            return f"group: no egress rule for all of {_groups_of(source)} names {_described(destination)}"
        if self._match(destination, "ingress", source) is None:
            return f"group: no ingress rule for all of {_groups_of(destination)} names {_described(source)}"
        for each in (source, destination):
            if not any(group.allows_itself for group in self._groups_of(each)):
                return f"EFA's rule: {each} needs a group that allows all to and from itself; it has {_listed(each)}"
        return None

    def unreachable(self, source: VpcInterface, destination: VpcInterface) -> str | None:
        """Return why no traffic at all can be between two interfaces; None: it can."""
        here, there = source.card.region, destination.card.region
        if here != there:
            return f"region: {source} is in {here}, {destination} in {there}; EFA traffic does not leave a region"
        if source.vpc_id != destination.vpc_id and destination.vpc_id not in self._peered_ids.get(source.vpc_id, ()):
            return f"peering: {source.vpc} and {destination.vpc} are not peered"
        return None

    def _match(self, own: VpcInterface, direction: Direction, peer: VpcInterface) -> str | None:
        """Return the first rule of an interface that allows all to or from a peer, as text; None: no rule does."""
        for group in self._groups_of(own):
            for rule in group.rules(direction):
                if rule.protocol == "all" and rule.names(peer):
                    return f"{direction} of {own}: group {group.name} allows {rule}"
        return None

    def _groups_of(self, interface: VpcInterface) -> Sequence[_Group]:
        return [group for name in interface.groups if (group := self._groups.get((interface.vpc, name))) is not None]


def _peered_ids(vpc_map: VpcMap) -> dict[int, tuple[int, ...]]:
    peered: dict[int, tuple[int, ...]] = {}
    for pair in vpc_map.peerings:
        one, other = (vpc_map.vpcs[name].id for name in pair)
        peered[one] = (*peered.get(one, ()), other)
        peered[other] = (*peered.get(other, ()), one)
    return peered


def _listed(interface: VpcInterface) -> str:
    return ", ".join(interface.groups) or "none"


def _groups_of(interface: VpcInterface) -> str:
    return f"{interface}'s groups ({_listed(interface)})"


def _described(interface: VpcInterface) -> str:
    return f"{interface} ({interface.address}, groups {_listed(interface)})"
