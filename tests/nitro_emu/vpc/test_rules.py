"""nitro_emu.vpc.rules: who may talk to whom."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.gid import IPV6_PORT, gid_of
from nitro_emu.vpc import rules
from nitro_emu.vpc.rules import Mapping, VpcInterface
from tests.nitro_emu.vpc.maps import (
    ALL_WITH_EFA,
    allows,
    interface,
    interface_of,
    mapping_of,
    peered_vpcs,
    two_vpcs,
)

Content = dict[str, Any]
EVERYONE = {"protocol": "all", "cidr": "0.0.0.0/0"}
EFA_AND_EVERYONE = {"ingress": [ALL_WITH_EFA, EVERYONE], "egress": [ALL_WITH_EFA, EVERYONE]}


def groups(content: Content, vpc: str = "red") -> dict[str, Any]:
    found: dict[str, Any] = content["vpcs"][vpc]["groups"]
    return found


def wear(content: Content, name: str, *worn: str) -> None:
    """Give an interface these groups."""
    content["vpcs"][name.partition("-")[0]]["interfaces"][name]["groups"] = list(worn)


def cidr(network: str, protocol: str = "all", **more: object) -> dict[str, object]:
    return {"protocol": protocol, "cidr": network, **more}


def no_groups(content: Content) -> None:
    wear(content, "red-1")


def no_ingress(content: Content) -> None:
    groups(content)["efa"]["ingress"] = []


def ipv6_only(content: Content) -> None:
    groups(content)["efa"]["ingress"] = [cidr("::/0")]


def not_itself(content: Content) -> None:
    groups(content)["efa"] = {"ingress": [EVERYONE], "egress": [EVERYONE]}


def other_region(content: Content) -> None:
    content["cards"]["card-2"]["region"] = "eu-1"


WITHIN_A_VPC = [
    (no_groups, "group: no egress rule for all of red/red-1's groups (none) names red/red-2"),
    (no_ingress, "group: no ingress rule for all of red/red-2's groups (efa) names red/red-1"),
    (ipv6_only, "group: no ingress rule"),
    (not_itself, "EFA's rule: red/red-1 needs a group that allows all to and"),
    (other_region, "region: red/red-1 is in local, red/red-2 in eu-1; EFA traffic does not le"),
]


@pytest.mark.parametrize(("change", "wanted"), WITHIN_A_VPC)
def test_why_not(change: Callable[[Content], None], wanted: str) -> None:
    """Whether at all: test_rules_are_what_a_plain_reading_of_the_file_says."""
    content = two_vpcs()
    assert mapping_of(content).grounds(*ends(mapping_of(content)))
    change(content)
    mapping = mapping_of(content)
    for _ in range(2):  # the second answer is the one that was kept
        check(mapping.refusal(*ends(mapping)), wanted)
    assert not mapping.grounds(*ends(mapping))


def ends(mapping: Mapping) -> tuple[VpcInterface, VpcInterface]:
    return interface_of(mapping, "red-1"), interface_of(mapping, "red-2")


def check(refusal: str | None, wanted: str) -> None:
    assert refusal is not None
    assert refusal.startswith(wanted)


def test_peering_is_not_transitive() -> None:
    content = peered_vpcs()
    for vpc in ("red", "green"):
        groups(content, vpc)["efa"] = EFA_AND_EVERYONE
    content["vpcs"]["blue"] = {
        "id": 3,
        "subnets": {"a": "172.31.2.0/24"},
        "groups": {"efa": EFA_AND_EVERYONE},
        "interfaces": {"blue-1": interface("172.31.2.5", port=7)},
    }
    content["peerings"].append(["blue", "green"])
    mapping = mapping_of(content)
    red, green, blue = (interface_of(mapping, f"{name}-1") for name in ("red", "green", "blue"))
    assert mapping.refusal(red, green) is None
    assert mapping.refusal(blue, green) is None
    assert mapping.refusal(red, blue) == "peering: red and blue are not peered"
    assert mapping.destination(green, blue.gid) is blue
    assert mapping.destination(red, blue.gid) is None


# -- indexes ----------------------------------------------------------------------------------------------------


def test_same_addresses_in_two_vpcs() -> None:
    mapping = mapping_of(two_vpcs())
    for vpc, vpc_id in (("red", 1), ("green", 2)):
        one, two = interface_of(mapping, f"{vpc}-1"), interface_of(mapping, f"{vpc}-2")
        assert one.gid == gid_of("172.31.0.5", port=IPV6_PORT)
        assert mapping.find(vpc, "172.31.0.5") is one
        assert mapping.by_encapsulation(vpc_id, two.gid) is two
        assert mapping.destination(one, two.gid) is two
        assert mapping.refusal(one, two) is None
    assert interface_of(mapping, "red-1").gid == interface_of(mapping, "green-1").gid
    assert mapping.find("blue", "172.31.0.5") is None
    assert mapping.find("red", "172.31.0.7") is None
    assert mapping.by_encapsulation(3, interface_of(mapping, "red-1").gid) is None
    assert mapping.by_encapsulation(1, b"") is None


def test_own_vpc_comes_before_a_peered_one() -> None:
    mapping = mapping_of(peered_vpcs())
    red, green = interface_of(mapping, "red-1"), interface_of(mapping, "green-1")
    assert mapping.destination(red, interface_of(mapping, "red-2").gid) is interface_of(mapping, "red-2")
    assert mapping.destination(red, green.gid) is green
    assert mapping.destination(red, gid_of("172.31.9.9", port=IPV6_PORT)) is None


def test_ipv6_addresses_have_several_forms() -> None:
    content = two_vpcs()
    content["vpcs"]["red"]["subnets"]["six"] = "fd00::/64"
    content["vpcs"]["red"]["interfaces"]["red-6"] = interface("fd00::9", subnet="six", port=7)
    mapping = mapping_of(content)
    found = interface_of(mapping, "red-6")
    assert mapping.find("red", "fd00::9") is mapping.find("red", "FD00:0::0009") is found
    assert found.gid == ipaddress.ip_address("fd00::9").packed
    assert mapping.find("red", ":") is None
    assert mapping.refusal(interface_of(mapping, "red-1"), found) is None


def test_card_and_keys() -> None:
    mapping = mapping_of(two_vpcs(), version=7)
    assert mapping.version == 7
    card = interface_of(mapping, "red-2").card
    assert (card.name, card.address, card.region) == ("card-2", "10.0.2.1", "local")
    assert card.public_key == (2).to_bytes(32, "big")
    assert mapping.card_keys == {(1).to_bytes(32, "big"), (2).to_bytes(32, "big")}
    assert str(interface_of(mapping, "red-2")) == "red/red-2"


def test_interface_of_an_older_map_is_refused_if_it_has_changed() -> None:
    older = mapping_of(two_vpcs())
    same = mapping_of(two_vpcs(), version=2)
    one, two = interface_of(older, "red-1"), interface_of(older, "red-2")
    assert same.refusal(one, two) is None
    content = two_vpcs()
    content["vpcs"]["red"]["interfaces"]["red-2"]["port"] = 99
    assert mapping_of(content, version=3).refusal(one, two) == (
        "map: red/red-2 (172.31.0.6) is not in version 3 of the map"
    )
    del content["vpcs"]["red"]["interfaces"]["red-1"]
    check(mapping_of(content).refusal(one, interface_of(mapping_of(content), "red-2")), "map: red/red-1 (172.31.0.5)")


@pytest.mark.parametrize("most", [rules.MAX_CACHED_PAIRS, 2])
def test_answers_that_are_kept_are_of_one_pair(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(rules, "MAX_CACHED_PAIRS", most)
    mapping = mapping_of(two_vpcs())  # the same addresses in both VPCs
    for _ in range(2):
        for source, destination in product(mapping.interfaces, repeat=2):
            assert (mapping.refusal(source, destination) is None) is (source.vpc == destination.vpc)


# -- other protocols ----------------------------------------------------------------------------------------------

PACKETS = [
    (cidr("0.0.0.0/0", "tcp", ports=443), "tcp", 443, "allowed"),
    (cidr("0.0.0.0/0", "tcp", ports=443), "tcp", 444, "refused"),
    (cidr("0.0.0.0/0", "tcp", ports=443), "udp", 443, "refused"),
    (cidr("0.0.0.0/0", "tcp", ports="8000-8100"), "tcp", 8000, "allowed"),
    (cidr("0.0.0.0/0", "tcp", ports="8000-8100"), "tcp", 8100, "allowed"),
    (cidr("0.0.0.0/0", "tcp", ports="8000-8100"), "tcp", 8101, "refused"),
    (cidr("0.0.0.0/0", "tcp"), "tcp", 1, "allowed"),
    (cidr("0.0.0.0/0", "tcp"), "tcp", None, "allowed"),
    (cidr("0.0.0.0/0", "tcp", ports="1-65535"), "tcp", None, "refused"),
    (cidr("0.0.0.0/0", "icmp"), "icmp", None, "allowed"),
    (cidr("0.0.0.0/0", "icmp"), "tcp", 1, "refused"),
    (cidr("0.0.0.0/0", "icmp", icmp_type=8), "icmp", 8, "allowed"),
    (cidr("0.0.0.0/0", "icmp", icmp_type=8), "icmp", 13, "refused"),
    (cidr("0.0.0.0/0", "icmp", icmp_type=8), "icmp", None, "refused"),
    (cidr("0.0.0.0/0", "icmp"), "icmpv6", 128, "refused"),
    (cidr("0.0.0.0/0", "icmpv6", icmp_type=0), "icmpv6", 0, "allowed"),
    (cidr("172.31.0.9/32", "udp"), "udp", 53, "refused"),
    (EVERYONE, "udp", 53, "allowed"),
    (EVERYONE, "gre", None, "allowed"),
]


@pytest.mark.parametrize(("rule", "protocol", "port", "wanted"), PACKETS)
@pytest.mark.parametrize("side", ["egress", "ingress"])
def test_ip_traffic_needs_no_prerequisite_of_efa(
    rule: object, protocol: str, port: int | None, wanted: str, side: str
) -> None:
    content = two_vpcs()
    groups(content)["one"] = {"egress": [rule if side == "egress" else EVERYONE]}
    groups(content)["two"] = {"ingress": [rule if side == "ingress" else EVERYONE]}
    wear(content, "red-1", "one")
    wear(content, "red-2", "two")
    mapping = mapping_of(content)
    one, two = interface_of(mapping, "red-1"), interface_of(mapping, "red-2")
    assert allows(mapping, one, two, protocol=protocol, port=port) is (wanted == "allowed")
    assert not allows(mapping, two, one, protocol=protocol, port=port)
    assert mapping.refusal(one, two) is not None


def test_ip_traffic_does_not_cross_vpcs_either() -> None:
    mapping = mapping_of(two_vpcs())
    assert not allows(mapping, interface_of(mapping, "red-1"), interface_of(mapping, "green-2"), protocol="tcp", port=1)


# -- an oracle ----------------------------------------------------------------------------------------------------

_peers = st.sampled_from(
    [
        {"group": "x"},
        {"group": "y"},
        {"group": "green/x"},
        {"cidr": "172.31.0.0/23"},
        {"cidr": "172.31.0.5/32"},
        {"cidr": "172.31.1.0/24"},
    ]
)
_rules = st.lists(
    st.builds(lambda protocol, peer: {"protocol": protocol, **peer}, st.sampled_from(["all", "tcp"]), _peers)
)
_group = st.fixed_dictionaries({"ingress": _rules.map(lambda r: r[:4]), "egress": _rules.map(lambda r: r[:4])})
_worn = st.lists(st.sampled_from(["x", "y"]), unique=True)


@given(groups=st.lists(_group, min_size=4, max_size=4), worn=st.lists(_worn, min_size=4, max_size=4))
def test_rules_are_what_a_plain_reading_of_the_file_says(groups: list[Content], worn: list[list[str]]) -> None:
    content = peered_vpcs()
    red_groups, green_groups = dict(zip("xy", groups[:2], strict=True)), dict(zip("xy", groups[2:], strict=True))
    content["vpcs"]["red"]["groups"], content["vpcs"]["green"]["groups"] = red_groups, green_groups
    names = ["red-1", "red-2", "green-1", "green-2"]
    for name, each in zip(names, worn, strict=True):
        wear(content, name, *each)
    mapping = mapping_of(content)
    for source in names:
        for destination in names:
            found = mapping.refusal(interface_of(mapping, source), interface_of(mapping, destination))
            assert (found is None) is plainly_allowed(content, source, destination)


def plainly_allowed(content: Content, source: str, destination: str) -> bool:
    return (
        any(plainly_names(content, rule, source, destination) for rule in plain_rules(content, source, "egress"))
        and any(
            plainly_names(content, rule, destination, source) for rule in plain_rules(content, destination, "ingress")
        )
        and plainly_ready(content, source)
        and plainly_ready(content, destination)
    )


def plain_fields(content: Content, name: str) -> tuple[str, Content]:
    vpc = name.partition("-")[0]
    return vpc, content["vpcs"][vpc]["interfaces"][name]


def plain_rules(content: Content, name: str, direction: str) -> list[Content]:
    vpc, fields = plain_fields(content, name)
    return [rule for group in fields["groups"] for rule in content["vpcs"][vpc]["groups"][group][direction]]


def plainly_names(content: Content, rule: Content, own: str, peer: str) -> bool:
    vpc, fields = plain_fields(content, peer)
    if rule["protocol"] != "all":
        return False
    if "cidr" in rule:
        return ipaddress.ip_address(fields["address"]) in ipaddress.ip_network(rule["cidr"])
    qualified = rule["group"] if "/" in rule["group"] else f"{plain_fields(content, own)[0]}/{rule['group']}"
    return qualified in {f"{vpc}/{group}" for group in fields["groups"]}


def plainly_ready(content: Content, name: str) -> bool:
    vpc, fields = plain_fields(content, name)

    def allows_itself(group: str, direction: str) -> bool:
        rules = content["vpcs"][vpc]["groups"][group][direction]
        return any(rule["protocol"] == "all" and rule.get("group") in {group, f"{vpc}/{group}"} for rule in rules)

    return any(allows_itself(group, "ingress") and allows_itself(group, "egress") for group in fields["groups"])


def test_mapping_of_an_empty_map() -> None:
    mapping: Mapping = mapping_of({})
    assert (mapping.interfaces, mapping.card_keys, mapping.find("red", "10.0.0.1")) == ((), frozenset(), None)
