"""The file of the control plane: cards, VPCs, subnets, security groups, interfaces and peerings.

    lifetime_s: 60
    cards:
      card-a: {address: 10.0.1.1, public_key: BASE64, push: /run/nitro-card-a/control.sock}
    vpcs:
      red:
        id: 1
        subnets: {a: 172.31.0.0/24}
        groups:
          efa: {ingress: [{protocol: all, group: efa}], egress: [{protocol: all, group: efa}]}
        interfaces:
          red-1: {address: 172.31.0.5, subnet: a, groups: [efa], card: card-a, port: 19875}
    peerings: [[red, green]]

An interface is a virtual function of a card, seen by its tenant: a private address in a subnet of a VPC. Two VPCs may
have the same addresses unless they are peered. Every mistake is one line with key, value and remedy: VpcError. Only the
first is reported. `nitro_emu.vpc.rules` says who may talk to whom.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from netns.base.naming import named
from netns.base.yaml_file import MAX_FILE_BYTES, Strict, mapping_of, validated
from nitro_emu.errors import AbiError, VpcError
from nitro_emu.gid import IPV6_PORT, gid_of
from nitro_emu.vpc.fields import Address, Cidr, GroupReference, Name, Network, Ports, PublicKey, Push

MAX_CARDS: Final = 1024
MAX_VPCS: Final = 256
MAX_INTERFACES: Final = 4096
"""Of all VPCs together: 16 cards with 256 VFs each. Their document has less than half a MiB."""

MAX_SUBNETS: Final = 200
"""Of a VPC: AWS's quota, as the next ones are."""
MAX_GROUPS_OF_INTERFACE: Final = 16
MAX_RULES: Final = 200
"""Of a group and direction."""
MAX_PEERINGS: Final = 1024
MAX_GROUPS: Final = 500
"""Of a VPC."""

MAX_LIFETIME_S: Final = 86400.0
"""How long a card may go on with what a control plane said that it no longer hears: a day at most."""


class CardFields(Strict):
    """A card: a host's, with virtual functions."""

    address: Address
    """IP address of the card in the network between cards; frames that name one of its interfaces go there."""

    public_key: PublicKey
    """The card's static X25519 key in base64. Cards refuse every peer whose key is not in the map."""

    push: Push
    """Where the control plane pushes the map to: the path of the card's control socket, or HOST:PORT."""

    region: Name = "local"
    """EFA traffic does not leave a region."""

    @property
    def key(self) -> bytes:
        """The public key's 32 bytes."""
        return base64.b64decode(self.public_key)


class RuleFields(Strict):
    """A rule of a security group: what it allows, from or to whom. There are no rules that deny."""

    protocol: Literal["all", "tcp", "udp", "icmp", "icmpv6"]
    """EFA traffic needs `all`; each is enough for packets of a virtual function of kind `ena-express`."""

    group: GroupReference | None = None
    """The peers: interfaces with this group, of the same VPC, or of a peered one (VPC/NAME)."""

    cidr: Cidr | None = None
    """The peers: private addresses in this range."""

    ports: Ports | None = None
    """With tcp and udp: the destination's port or range of ports, such as 443 or 8000-8100. Default: all."""

    icmp_type: int | None = Field(default=None, ge=0, le=255)
    """With icmp and icmpv6: the type, such as 8 (icmp) or 128 (icmpv6) for an echo request. Default: all."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.group is None) == (self.cidr is None):
            raise ValueError("a rule names its peers by group or by cidr; give one of the two")
        if self.ports is not None and self.protocol not in {"tcp", "udp"}:
            raise ValueError(f"ports: {self.ports} stands beside protocol {self.protocol}, which has none; remove it")
        if self.icmp_type is not None and self.protocol not in {"icmp", "icmpv6"}:
            raise ValueError(
                f"icmp_type: {self.icmp_type} stands beside protocol {self.protocol}, which has none; remove it"
            )
        return self

    @property
    def port_range(self) -> tuple[int, int]:
        """The first and the last port; of icmp and icmpv6: type."""
        if self.icmp_type is not None:
            return self.icmp_type, self.icmp_type
        low, _, high = (self.ports or "0-65535").partition("-")
        return int(low), int(high or low)


Rules = Annotated[tuple[RuleFields, ...], Field(max_length=MAX_RULES, strict=False)]


class GroupFields(Strict):
    """A security group: what its interfaces may receive and send. What no rule of theirs allows is refused."""

    ingress: Rules = ()
    egress: Rules = ()


class VpcInterfaceFields(Strict):
    """An interface: a virtual function of a card as its tenant sees it."""

    address: Address
    """Its private address, in the subnet."""

    subnet: Name
    groups: tuple[Name, ...] = Field(max_length=MAX_GROUPS_OF_INTERFACE, strict=False)
    """Its security groups, of its VPC. Without one it may not send or receive anything."""

    card: Name
    port: int = Field(default=IPV6_PORT, ge=1, le=65535)
    """UDP port of the virtual function on the card; it identifies it there."""


class VpcFields(Strict):
    """A VPC: a network of one tenant."""

    id: int = Field(ge=1, lt=1 << 32)
    """Its number in the frames between cards."""

    subnets: Mapping[Name, Cidr] = Field(min_length=1, max_length=MAX_SUBNETS)
    groups: Mapping[Name, GroupFields] = Field(default={}, max_length=MAX_GROUPS)
    interfaces: Mapping[Name, VpcInterfaceFields] = Field(default={}, max_length=MAX_INTERFACES)


class VpcMap(Strict):
    """All that the control plane says: immutable, and checked in itself."""

    lifetime_s: float = Field(default=60.0, ge=0.1, le=MAX_LIFETIME_S)
    """How long a card goes by a map after it was issued; then it refuses what the map allowed."""

    cards: Mapping[Name, CardFields] = Field(default={}, max_length=MAX_CARDS)
    vpcs: Mapping[Name, VpcFields] = Field(default={}, max_length=MAX_VPCS)
    peerings: tuple[Annotated[tuple[Name, Name], Field(strict=False)], ...] = Field(
        default=(), max_length=MAX_PEERINGS, strict=False
    )
    """Pairs of VPCs whose interfaces may talk. Peering is not transitive."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_cards(self.cards)
        _check_ids(self.vpcs)
        for name, vpc in self.vpcs.items():
            _check_subnets(vpc, key=f"vpcs.{name}")
            _check_interfaces(self, vpc, key=f"vpcs.{name}.interfaces")
        _check_places(self)
        peered = _check_peerings(self)
        for name in self.vpcs:
            _check_rules(self, name, peered=peered)
        return self


def _check_cards(cards: Mapping[str, CardFields]) -> None:
    keys: dict[str, str] = {}
    pushes: dict[str, str] = {}
    for name, card in cards.items():
        if (other := keys.setdefault(card.public_key, name)) != name:
            raise ValueError(f"cards.{name}.public_key: is also {other}'s; each card has its own: nitro-chip key")
        if (other := pushes.setdefault(card.push, name)) != name:
            raise ValueError(f"cards.{name}.push: {card.push} is also {other}'s; give each card its own")


def _check_ids(vpcs: Mapping[str, VpcFields]) -> None:
    ids: dict[int, str] = {}
    for name, vpc in vpcs.items():
        if (other := ids.setdefault(vpc.id, name)) != name:
            raise ValueError(f"vpcs.{name}.id: {vpc.id} is also {other}'s; give each VPC its own")


def _check_subnets(vpc: VpcFields, *, key: str) -> None:
    named = ((ipaddress.ip_network(cidr), f"subnet {name}") for name, cidr in vpc.subnets.items())
    if (overlap := _first_overlap(named)) is not None:
        raise ValueError(f"{key}.subnets: {overlap}; give each subnet its own range")


def _first_overlap(networks: Iterable[tuple[Network, str]]) -> str | None:
    """Return which two of the named networks overlap. Networks that do are neighbours in the order of addresses."""
    ordered = sorted(networks, key=lambda each: (each[0].version, int(each[0].network_address), each[0].prefixlen))
    for (wide, first), (narrow, second) in pairwise(ordered):
        if wide.version == narrow.version and int(narrow.network_address) <= int(wide.broadcast_address):
            return f"{first} ({wide}) and {second} ({narrow}) overlap"
    return None


def _check_interfaces(found: VpcMap, vpc: VpcFields, *, key: str) -> None:
    """Check what the interfaces of a VPC refer to, and that each has its own address."""
    subnets = {name: ipaddress.ip_network(cidr) for name, cidr in vpc.subnets.items()}
    addresses: dict[str, str] = {}
    for name, interface in vpc.interfaces.items():
        here = f"{key}.{name}"
        if interface.subnet not in subnets:
            raise ValueError(f"{here}.subnet: {interface.subnet}: {_no_such('subnet', subnets)}")
        _check_in_subnet(interface.address, subnets[interface.subnet], subnet=interface.subnet, key=here)
        if (other := addresses.setdefault(interface.address, name)) != name:
            raise ValueError(f"{here}.address: {interface.address} is also {other}'s; give each its own")
        _check_groups(interface, vpc.groups, key=here)
        if interface.card not in found.cards:
            raise ValueError(f"{here}.card: {interface.card}: {_no_such('card', found.cards)}")
        with named(f"{here}.", AbiError, error=ValueError):
            gid_of(found.cards[interface.card].address, port=interface.port)


def _check_groups(interface: VpcInterfaceFields, groups: Mapping[str, GroupFields], *, key: str) -> None:
    for group in interface.groups:
        if group not in groups:
            raise ValueError(f"{key}.groups: {group}: {_no_such('group', groups)}")
    if len(set(interface.groups)) != len(interface.groups):
        raise ValueError(f"{key}.groups: {', '.join(interface.groups)}: one is given twice; keep one")


def _check_in_subnet(text: str, network: Network, *, subnet: str, key: str) -> None:
    address = ipaddress.ip_address(text)
    if address not in network:
        raise ValueError(f"{key}.address: {text} is not in subnet {subnet} ({network}); give an address of it")
    own = {network.network_address, network.broadcast_address} if network.version == 4 else {network.network_address}
    if network.max_prefixlen - network.prefixlen > 1 and address in own:
        raise ValueError(f"{key}.address: {text} means subnet {subnet} ({network}) itself; give another address of it")


def _check_places(found: VpcMap) -> None:
    """Check that each interface has a virtual function of its own, and that there are not too many."""
    places: dict[tuple[str, int], str] = {}
    for vpc, name, interface in _all_interfaces(found):
        place = found.cards[interface.card].address, interface.port
        here = f"vpcs.{vpc}.interfaces.{name}"
        if (other := places.setdefault(place, here)) != here:
            raise ValueError(f"{here}.port: {place[0]} port {place[1]} is also that of {other}; change one of the two")
    if len(places) > MAX_INTERFACES:
        raise ValueError(f"vpcs: {len(places)} interfaces; a map has at most {MAX_INTERFACES}: make two")


def _all_interfaces(found: VpcMap) -> Iterator[tuple[str, str, VpcInterfaceFields]]:
    return ((vpc, name, each) for vpc, fields in found.vpcs.items() for name, each in fields.interfaces.items())


def _check_peerings(found: VpcMap) -> set[frozenset[str]]:
    """Check the peerings; return them as sets of two names."""
    peered: set[frozenset[str]] = set()
    for index, pair in enumerate(found.peerings):
        key = f"peerings[{index}]"
        for name in pair:
            if name not in found.vpcs:
                raise ValueError(f"{key}: {name}: {_no_such('VPC', found.vpcs)}")
        if pair[0] == pair[1]:
            raise ValueError(f"{key}: {pair[0]} is peered with itself; remove the pair")
        if frozenset(pair) in peered:
            raise ValueError(f"{key}: {pair[0]} and {pair[1]} are peered twice; keep one pair")
        peered.add(frozenset(pair))
        named = (
            (ipaddress.ip_network(cidr), f"{vpc}/{name}")
            for vpc in pair
            for name, cidr in found.vpcs[vpc].subnets.items()
        )
        if (overlap := _first_overlap(named)) is not None:
            raise ValueError(f"{key}: {overlap}; peered VPCs need different ranges")
    return peered


def _check_rules(found: VpcMap, vpc: str, *, peered: set[frozenset[str]]) -> None:
    """Check that the groups which rules name exist, in this VPC or in a peered one."""
    for group, fields in found.vpcs[vpc].groups.items():
        for direction, rules in (("ingress", fields.ingress), ("egress", fields.egress)):
            for index, rule in enumerate(rules):
                if rule.group is not None:
                    key = f"vpcs.{vpc}.groups.{group}.{direction}[{index}].group"
                    _check_reference(found, rule.group, vpc=vpc, peered=peered, key=key)


def _check_reference(found: VpcMap, reference: str, *, vpc: str, peered: set[frozenset[str]], key: str) -> None:
    owner, group = group_of(reference, vpc=vpc)
    if owner not in found.vpcs:
        raise ValueError(f"{key}: {reference}: {_no_such('VPC', found.vpcs)}")
    if owner != vpc and frozenset((vpc, owner)) not in peered:
        raise ValueError(f"{key}: {reference}: {vpc} and {owner} are not peered; add [{vpc}, {owner}] to peerings")
    if group not in (groups := found.vpcs[owner].groups):
        raise ValueError(f"{key}: {reference}: {_no_such('group', groups)}")


def group_of(reference: str, *, vpc: str) -> tuple[str, str]:
    """Return the VPC and the name of the group that a rule of this VPC refers to."""
    owner, _, group = reference.rpartition("/")
    return owner or vpc, group


def _no_such(kind: str, known: Iterable[str]) -> str:
    names = list(known)
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"no such {kind}; there {'is' if len(names) == 1 else 'are'} {listed or 'none'}"


# -- reading ----------------------------------------------------------------------------------------------------


def load(path: Path) -> VpcMap:
    """Return the map in a YAML file. Raises VpcError with file, key, value and remedy."""
    return parse(read(path), name=str(path))


def read(path: Path) -> bytes:
    """Return a YAML file's content. Raises VpcError."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise VpcError(f"{path}: cannot be read: {error.strerror}; name the control plane's YAML file") from None


def parse(content: bytes, *, name: str) -> VpcMap:
    """Return the map in a YAML file's content. Raises VpcError. `name`: the file's, for messages."""
    with named(f"{name}: ", VpcError):
        document = mapping_of(content, error=VpcError, wanted="holds no map; give cards: and vpcs:")
        return checked_untrusted(document)


def checked_untrusted(document: Mapping[Any, Any]) -> VpcMap:
    """Return the map that a parsed file or document is. Raises VpcError with key, value and remedy."""
    return validated(VpcMap, document, error=VpcError)
