"""Whom a virtual function may talk to, by the mapping: no card, no network."""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key

from nitro_emu.errors import VpcError
from nitro_emu.gid import IPV6_PORT, gid_of
from nitro_emu.peers.introduction import VfHello
from nitro_emu.peers.mapping import VpcNetwork
from nitro_emu.peers.tenancy import (
    ForgeryError,
    OpenTenancy,
    OtherMappingError,
    PacketTenancy,
    VfAddress,
    VpcTenancy,
)
from nitro_emu.trust.alarms import Alarms
from nitro_emu.vpc.document import sign_map
from nitro_emu.vpc.flows import Begin
from nitro_emu.vpc.model import VpcMap

KEY = generate_private_key(SECP384R1())
OTHER_KEY = generate_private_key(SECP384R1())
START_S = 1_795_000_000.0
RED, BLUE = "172.31.0.5", "172.31.0.6"
KEY_A, KEY_B = b"a" * 32, b"b" * 32
GROUP = {"ingress": [{"protocol": "all", "group": "efa"}], "egress": [{"protocol": "all", "group": "efa"}]}
CARDS = {
    name: {"address": address, "public_key": base64.b64encode(key).decode(), "push": f"/run/{name}.sock"}
    for name, address, key in (("card-a", "10.0.1.1", KEY_A), ("card-b", "10.0.1.2", KEY_B))
}


def vpc(number: int, *, first: str, second: str, port: int) -> dict[str, Any]:
    return {
        "id": number,
        "subnets": {"a": "172.31.0.0/16"},
        "groups": {"efa": copy.deepcopy(GROUP)},
        "interfaces": {
            "one": {"address": RED, "subnet": "a", "groups": ["efa"], "card": first, "port": port},
            "two": {"address": BLUE, "subnet": "a", "groups": ["efa"], "card": second, "port": port},
        },
    }


MAP: dict[str, Any] = {
    "lifetime_s": 60,
    "cards": CARDS,
    "vpcs": {
        "red": vpc(1, first="card-a", second="card-b", port=IPV6_PORT),
        "blue": vpc(2, first="card-b", second="card-a", port=IPV6_PORT + 1),
    },
}


def gid(address: str) -> bytes:
    return gid_of(address, port=IPV6_PORT)


@dataclass
class Clocks:
    wall_s: float = START_S
    monotonic_s: float = 100.0

    def tick(self, seconds: float) -> None:
        self.wall_s += seconds
        self.monotonic_s += seconds


def document_of(version: int, *, content: dict[str, Any] = MAP, issued_at_s: float = START_S, key: Any = KEY) -> bytes:
    return sign_map(VpcMap.model_validate(content), version=version, issued_at_s=issued_at_s, key=key)


class Rig:
    """A card's network with clocks that stand still until they are told otherwise."""

    def __init__(self, *, version_file: Path | None = None) -> None:
        self.clocks = Clocks()
        self.alarms = Alarms()
        self.network = VpcNetwork(
            "card-b",
            control_plane=KEY.public_key(),
            alarms=self.alarms,
            version_file=version_file,
            wall_clock=lambda: self.clocks.wall_s,
            clock=lambda: self.clocks.monotonic_s,
        )

    def push(
        self, version: int, *, content: dict[str, Any] = MAP, issued_at_s: float = START_S, key: Any = KEY
    ) -> None:
        self.network.set_map_untrusted(document_of(version, content=content, issued_at_s=issued_at_s, key=key))

    def vf(self, vpc_name: str = "red", address: str = BLUE, *, port: int = IPV6_PORT) -> VpcTenancy:
        return VpcTenancy(self.network, vpc=vpc_name, private_address=address, port=port, public_key=KEY_B)


def without(*path: str, groups: list[Any] | None = None) -> dict[str, Any]:
    """The map with one part emptied."""
    content = copy.deepcopy(MAP)
    part: Any = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = [] if groups is None else groups
    return content


def test_destination__is_the_card_of_the_own_vpc() -> None:
    rig = Rig()
    rig.push(1)
    assert rig.vf().destination(gid(RED)) == VfAddress("10.0.1.1", IPV6_PORT, KEY_A, 1, 1)
    blue = rig.vf("blue", RED, port=IPV6_PORT + 1)
    assert blue.destination(gid(BLUE)) == VfAddress("10.0.1.1", IPV6_PORT + 1, KEY_A, 2, 1)
    assert blue.destination(gid(RED)) == VfAddress("10.0.1.2", IPV6_PORT + 1, KEY_B, 2, 1)


@pytest.mark.parametrize("address", ["172.31.9.9", "10.0.1.1", "10.0.1.2"])
def test_destination__elsewhere_is_refused(address: str) -> None:
    rig = Rig()
    rig.push(1)
    with pytest.raises(VpcError, match="no interface"):
        rig.vf().destination(gid(address))


@pytest.mark.parametrize(
    ("vpc_name", "address", "port", "reason"),
    [
        ("green", BLUE, IPV6_PORT, "no interface of VPC green"),
        ("red", "172.31.0.9", IPV6_PORT, "no interface of VPC red"),
        ("red", RED, IPV6_PORT, "is on card-a"),
        ("red", BLUE, IPV6_PORT + 1, "not on this card"),
    ],
)
def test_own__that_the_mapping_does_not_have_here_reaches_nothing(
    vpc_name: str, address: str, port: int, reason: str
) -> None:
    rig = Rig()
    rig.push(1)
    with pytest.raises(VpcError, match=reason):
        rig.vf(vpc_name, address, port=port).destination(gid(RED))


HELLO = VfHello(1, gid(RED), gid(BLUE))


def test_source__that_the_mapping_has_there_is_let_in() -> None:
    rig = Rig()
    rig.push(1)
    rig.vf().check_source(HELLO, host="10.0.1.1", public_key=KEY_A)


@pytest.mark.parametrize(
    ("hello", "host", "key", "reason"),
    [
        (VfHello(9, gid(RED), gid(BLUE)), "10.0.1.1", KEY_A, "no interface"),
        (VfHello(0, gid(RED), gid(BLUE)), "10.0.1.1", KEY_A, "no interface"),
        (VfHello(1, gid("172.31.0.7"), gid(BLUE)), "10.0.1.1", KEY_A, "no interface"),
        (VfHello(1, bytes(16), gid(BLUE)), "10.0.1.1", KEY_A, "no interface"),
        (HELLO, "10.0.1.1", KEY_B, "says that it is"),
        (HELLO, "10.0.1.1", b"", "says that it is"),
        (HELLO, "10.0.1.3", KEY_A, "says that it is"),
        (VfHello(1, gid(BLUE), gid(BLUE)), "10.0.1.1", KEY_A, "says that it is"),
        (VfHello(2, gid(RED), gid(BLUE)), "10.0.1.1", KEY_A, "says that it is"),
        (VfHello(1, gid(RED), gid(RED)), "10.0.1.1", KEY_A, "not at this port"),
    ],
)
def test_source__that_is_forged_is_refused(hello: VfHello, host: str, key: bytes, reason: str) -> None:
    rig = Rig()
    rig.push(1)
    with pytest.raises(ForgeryError, match=reason):
        rig.vf().check_source(hello, host=host, public_key=key)


def test_source__by_another_mapping_is_no_forgery() -> None:
    """While a new mapping is pushed, one card has it before the other."""
    rig = Rig()
    rig.push(5)
    lie = VfHello(1, gid("172.31.0.7"), gid(BLUE), b"", 6)
    with pytest.raises(OtherMappingError, match="by mapping 6; this card has 5"):
        rig.vf().check_source(lie, host="10.0.1.1", public_key=KEY_A)
    with pytest.raises(ForgeryError):
        rig.vf().check_source(replace(lie, map_version=5), host="10.0.1.1", public_key=KEY_A)


def test_own__with_another_key_in_the_mapping_is_said() -> None:
    rig = Rig()
    rig.push(1)
    tenancy = VpcTenancy(rig.network, vpc="red", private_address=BLUE, port=IPV6_PORT, public_key=KEY_A)
    with pytest.raises(VpcError, match="card-b has another key in the mapping"):
        tenancy.destination(gid(RED))


def test_source__of_another_vpc_is_refused_though_it_does_not_lie() -> None:
    rig = Rig()
    rig.push(1)
    with pytest.raises(VpcError, match="not peered") as error:
        rig.vf().check_source(VfHello(2, gid(BLUE), gid(BLUE)), host="10.0.1.1", public_key=KEY_A)
    assert not isinstance(error.value, ForgeryError)


@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_group__without_its_rule_refuses_both_directions(direction: str) -> None:
    rig = Rig()
    rig.push(1, content=without("vpcs", "red", "groups", "efa", direction))
    with pytest.raises(VpcError, match=direction):
        rig.vf().destination(gid(RED))
    with pytest.raises(VpcError, match=direction):
        rig.vf().check_source(HELLO, host="10.0.1.1", public_key=KEY_A)


def test_open__takes_gids_for_addresses() -> None:
    tenancy = OpenTenancy("10.0.1.2", port=7000)
    assert tenancy.destination(gid_of("10.0.1.1", port=7001)) == VfAddress("10.0.1.1", 7001)
    tenancy.check_source(VfHello(0, gid_of("10.0.1.1", port=7001), tenancy.gid), host="10.0.1.1", public_key=b"")
    for hello, host in (
        (VfHello(0, gid_of("10.0.1.1", port=7001), tenancy.gid), "10.0.1.3"),
        (VfHello(1, gid_of("10.0.1.1", port=7001), tenancy.gid), "10.0.1.1"),
        (VfHello(0, bytes(16), tenancy.gid), "10.0.1.1"),
    ):
        with pytest.raises(ForgeryError):
            tenancy.check_source(hello, host=host, public_key=b"")
    with pytest.raises(VpcError, match="another address family"):
        tenancy.destination(gid_of("fd00::1", port=IPV6_PORT))
    with pytest.raises(VpcError):
        tenancy.destination(bytes(16))


# -- the mapping's life ------------------------------------------------------------------------------------------


def test_mapping__none_yet_allows_nothing() -> None:
    rig = Rig()
    with pytest.raises(VpcError, match="no mapping yet"):
        rig.vf().destination(gid(RED))
    with pytest.raises(VpcError, match="no mapping yet"):
        rig.vf().check_source(HELLO, host="10.0.1.1", public_key=KEY_A)
    assert KEY_A not in rig.network
    assert rig.network.status() == {"version": None, "expires_in_s": 0.0, "expired": False}
    rig.network.check_expiry()
    assert not rig.alarms.counts
    assert rig.network.card_addresses == frozenset()


def test_mapping__stays_until_its_lifetime_is_over_and_not_longer() -> None:
    rig = Rig()
    rig.push(1)
    rig.clocks.tick(59.9)
    rig.vf().destination(gid(RED))
    rig.clocks.tick(0.2)
    with pytest.raises(VpcError, match="mapping 1 has expired"):
        rig.vf().destination(gid(RED))
    with pytest.raises(VpcError, match="expired"):
        rig.vf().check_source(HELLO, host="10.0.1.1", public_key=KEY_A)
    rig.push(2, issued_at_s=rig.clocks.wall_s)
    rig.vf().destination(gid(RED))


def test_mapping__a_clock_that_is_set_changes_nothing_of_its_lifetime() -> None:
    rig = Rig()
    rig.push(1)
    rig.clocks.wall_s += 86400
    rig.vf().destination(gid(RED))
    rig.clocks.wall_s -= 2 * 86400
    rig.clocks.monotonic_s += 61
    with pytest.raises(VpcError, match="expired"):
        rig.vf().destination(gid(RED))


def test_mapping__that_was_delayed_lives_for_what_is_left() -> None:
    rig = Rig()
    rig.push(1, issued_at_s=START_S - 50)
    rig.clocks.tick(10.5)
    with pytest.raises(VpcError, match="expired"):
        rig.vf().destination(gid(RED))


def test_keys__of_cards_may_open_peers_and_no_others() -> None:
    rig = Rig()
    rig.push(1)
    assert KEY_A in rig.network
    assert b"c" * 32 not in rig.network
    assert rig.alarms.counts["unknown-card"] == 1
    assert rig.network.card_addresses == {"10.0.1.1", "10.0.1.2"}


# -- packets --------------------------------------------------------------------------------------------------------

WEB = {"ingress": [{"protocol": "tcp", "ports": 443, "group": "efa"}], "egress": []}


def packets_vf(rig: Rig) -> PacketTenancy:
    return PacketTenancy(rig.network, vpc="red", private_address=BLUE, port=IPV6_PORT, public_key=KEY_B)


def begin(address: str = RED, *, port: int | None = 443, outbound: bool = False) -> Begin:
    packed = bytes(map(int, address.split(".")))
    return Begin(is_outbound=outbound, peer=packed, protocol="tcp", port=port)


def test_packets__a_peer_needs_no_rule_and_a_flow_does() -> None:
    rig = Rig()
    content = copy.deepcopy(MAP)
    content["vpcs"]["red"]["groups"]["web"] = WEB
    content["vpcs"]["red"]["interfaces"]["two"]["groups"] = ["web"]
    vf = packets_vf(rig)
    assert (vf.flow_refusal(begin()), vf.rules_version) == ("no_mapping", 0)
    rig.push(7, content=content)
    assert vf.rules_version == 7
    with pytest.raises(VpcError):
        rig.vf().destination(gid(RED))
    assert vf.destination(gid(RED)) == VfAddress("10.0.1.1", IPV6_PORT, KEY_A, 1, 7)
    vf.check_source(HELLO, host="10.0.1.1", public_key=KEY_A)
    with pytest.raises(ForgeryError):
        vf.check_source(HELLO, host="10.0.1.1", public_key=KEY_B)
    assert vf.flow_refusal(begin()) is None
    assert vf.flow_refusal(begin(port=80)) == "security_group"
    assert vf.flow_refusal(begin(outbound=True)) == "security_group"
    assert vf.flow_refusal(begin("172.31.0.9")) == "no_interface"
    assert vf.flow_refusal(begin("224.0.0.1", outbound=True)) == "no_interface"
    rig.clocks.tick(61)
    assert vf.flow_refusal(begin()) == "no_mapping", "it has expired"
    assert vf.rules_version == 7, "what is open goes on"
