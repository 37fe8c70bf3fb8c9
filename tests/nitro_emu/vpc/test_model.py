"""nitro_emu.vpc.model: what the control plane's file may say, and how mistakes in it read."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.card.config import load as load_card
from nitro_emu.errors import VpcError
from nitro_emu.examples import DIRECTORY as EXAMPLES
from nitro_emu.vpc.model import (
    MAX_GROUPS_OF_INTERFACE,
    MAX_INTERFACES,
    MAX_RULES,
    MAX_SUBNETS,
    RuleFields,
    VpcMap,
    checked_untrusted,
    load,
    parse,
)
from tests.nitro_emu.vpc.maps import ALL_WITH_EFA, card, interface, map_of, peered_vpcs, public_key, two_vpcs, vpc

REMOVE = object()


def changed(content: dict[str, Any], position: str, value: object) -> dict[str, Any]:
    """Return the content with a value at a position such as vpcs.red.id, or without it."""
    made = copy.deepcopy(content)
    *way, last = position.split(".")
    part: Any = made
    for step in way:
        part = part[int(step) if isinstance(part, list) else step]
    if value is REMOVE:
        del part[last]
    else:
        part[int(last) if isinstance(part, list) else last] = value
    return made


def error_of(content: dict[Any, Any]) -> str:
    with pytest.raises(VpcError) as caught:
        checked_untrusted(content)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("kind", ["", "vpc-"])
def test_example_names_the_interfaces_of_the_examples_cards(kind: str) -> None:
    found = load(EXAMPLES / "vpc.yaml")
    for name in ("card-a", "card-b"):
        settings = load_card(EXAMPLES / f"{kind}{name}.yaml")
        assert found.cards[name].push == str(settings.run_dir / "control.sock")
        mapped = {
            (found.cards[each.card].address, each.port)
            for fields in found.vpcs.values()
            for each in fields.interfaces.values()
            if each.card == name
        }
        assert mapped == {(vf.address, vf.port) for vf in settings.vfs}
        assert all(
            vf.private_address in {each.address for each in found.vpcs[vf.vpc].interfaces.values()}
            for vf in settings.vfs
            if vf.vpc is not None
        )


def test_defaults() -> None:
    found = map_of({})
    assert (found.lifetime_s, found.cards, found.vpcs, found.peerings) == (60.0, {}, {}, ())
    content = two_vpcs()
    del content["vpcs"]["red"]["interfaces"]["red-1"]["port"]
    found = map_of(content)
    assert found.vpcs["red"].interfaces["red-1"].port == 19875
    assert found.cards["card-1"].region == "local"
    assert found.cards["card-1"].key == (1).to_bytes(32, "big")


def test_ipv6() -> None:
    content = two_vpcs()
    content["vpcs"]["red"]["subnets"]["six"] = "FD00:0::/64"
    content["vpcs"]["red"]["interfaces"]["red-3"] = interface("fd00::0:9", subnet="six", port=7)
    found = map_of(content)
    assert found.vpcs["red"].subnets["six"] == "fd00::/64"
    assert found.vpcs["red"].interfaces["red-3"].address == "fd00::9"


def test_ranges_of_ipv4_and_ipv6_do_not_overlap() -> None:
    map_of({"vpcs": {"red": vpc(1, subnets={"four": "10.0.0.0/8", "six": "::a00:0/112"})}})


MISTAKES = [
    ("name", "x", "name: no such key; the known ones here are lifetime_s, cards, vpcs, peerings"),
    ("lifetime_s", 0, "lifetime_s: 0 should be greater than or equal to 0.1"),
    ("lifetime_s", 86401, "lifetime_s: 86401 should be less than or equal to 86400"),
    ("lifetime_s", "60", "lifetime_s: '60' should be a valid number"),
    ("lifetime_s", float("nan"), "lifetime_s: nan should be a finite number"),
    ("cards", [], "cards: [] should be a valid mapping"),
    ("cards.card-1.key", "x", "cards.card-1.key: no such key; the known ones here are address, public_key, push, reg"),
    ("cards.card-1.push", REMOVE, "cards.card-1.push: missing"),
    ("cards.card-1.push", "run/x.sock", "'run/x.sock' is neither the absolute path of a card's control socket nor HO"),
    ("cards.card-1.push", "host:0", "'host:0' is neither"),
    ("cards.card-1.push", "host:65536", "'host:65536' is neither"),
    ("cards.card-1.push", "fd00::1:99", "'fd00::1:99' is neither"),
    ("cards.card-1.push", "a..b:7471", "'a..b:7471' names no host: give an IPv4 address, an IPv6 address in brackets"),
    ("cards.card-1.push", ".:7471", "'.:7471' names no host"),
    ("cards.card-1.push", 64 * "a" + ".example:7471", ".example:7471' names no host"),
    ("cards.card-1.push", "[::::]:7471", "'[::::]:7471' names no host"),
    ("cards.card-1.push", "/" + 107 * "x", "has 108 bytes; a socket's path has at most 107"),
    ("cards.card-1.push", "/run/card-2.sock", "cards.card-2.push: /run/card-2.sock is also card-1's; give each card"),
    ("cards.card-1.address", "host", "cards.card-1.address: 'host' does not appear to be an IPv4 or IPv6 address; gi"),
    ("cards.card-1.address", "224.0.0.1", "is not the GID of a peer; give a unicast address"),
    ("cards.card-1.public_key", "AAAA", "cards.card-1.public_key: 'AAAA' is no X25519 key of 32 bytes in base64"),
    ("cards.card-1.public_key", public_key(0), "is no X25519 key"),
    ("cards.card-1.public_key", public_key(1) + "\n", "is no X25519 key"),
    ("cards.card-1.public_key", public_key(2), "cards.card-2.public_key: is also card-1's; each card has its own"),
    ("cards.card-1.region", "EU West", "cards.card-1.region: 'EU West' is no name; use 1 to 32 of a-z, 0-9, _ and -"),
    ("cards.Card", card(9), "'Card' is no name"),
    ("vpcs.red.name", "x", "vpcs.red.name: no such key; the known ones here are id, subnets, groups, interfaces"),
    ("vpcs.red.id", 0, "vpcs.red.id: 0 should be greater than or equal to 1"),
    ("vpcs.red.id", 1 << 32, "vpcs.red.id: 4294967296 should be less than 4294967296"),
    ("vpcs.red.id", True, "vpcs.red.id: True should be a valid integer"),
    ("vpcs.red.id", 2, "vpcs.green.id: 2 is also red's; give each VPC its own"),
    ("vpcs.red.subnets", {}, "vpcs.red.subnets: {} Dictionary should have at least 1 item"),
    ("vpcs.red.subnets.a", "172.31.0.0", "vpcs.red.subnets.a: '172.31.0.0' has no prefix length; give an address ra"),
    ("vpcs.red.subnets.a", "172.31.0.1/24", "172.31.0.1/24 has host bits set; give an address range, such as 172.3"),
    ("vpcs.red.subnets.a", "172.32.0.0/24", "interfaces.red-1.address: 172.31.0.5 is not in subnet a (172.32.0.0/24)"),
    ("vpcs.red.subnets.b", "172.31.0.128/25", "vpcs.red.subnets: subnet a (172.31.0.0/24) and subnet b (172.31.0.12"),
    ("vpcs.red.subnets.b", "172.0.0.0/8", "vpcs.red.subnets: subnet b (172.0.0.0/8) and subnet a (172.31.0.0/24) ov"),
    ("vpcs.red.interfaces.red-1.address", "172.31.0.6", "red-2.address: 172.31.0.6 is also red-1's; give each its"),
    ("vpcs.red.interfaces.red-1.address", "172.31.1.5", "vpcs.red.interfaces.red-1.address: 172.31.1.5 is not in su"),
    ("vpcs.red.interfaces.red-1.address", "fd00::5", "fd00::5 is not in subnet a"),
    ("vpcs.red.interfaces.red-1.address", "fe80::5", "is not the GID of a peer; give a unicast address"),
    ("vpcs.red.interfaces.red-1.address", "::ffff:172.31.0.5", "give a unicast address"),
    ("vpcs.red.interfaces.red-1.address", "fd00::5%eth0", "give a unicast address"),
    ("vpcs.red.interfaces.red-1.address", "172.31.0.0", "172.31.0.0 means subnet a (172.31.0.0/24) itself"),
    ("vpcs.red.interfaces.red-1.address", "172.31.0.255", "172.31.0.255 means subnet a (172.31.0.0/24) itself"),
    ("vpcs.red.interfaces.red-1.subnet", "z", "vpcs.red.interfaces.red-1.subnet: z: no such subnet; there is a"),
    ("vpcs.red.interfaces.red-1.groups", ["z"], "vpcs.red.interfaces.red-1.groups: z: no such group; there is efa"),
    ("vpcs.red.interfaces.red-1.groups", ["efa", "efa"], "red-1.groups: efa, efa: one is given twice; keep one"),
    ("vpcs.red.interfaces.red-1.groups", "efa", "red-1.groups: 'efa' should be a valid list"),
    ("vpcs.red.interfaces.red-1.card", "z", "red-1.card: z: no such card; there are card-1, card-2"),
    ("vpcs.red.interfaces.red-1.port", 0, "red-1.port: 0 should be greater than or equal to 1"),
    ("vpcs.red.interfaces.red-1.port", 19876, "port: 10.0.1.1 port 19876 is also that of vpcs.red.interfaces.red-1"),
    ("vpcs.red.interfaces.red-1.mac", "x", "red-1.mac: no such key; the known ones here are address, subnet, groups"),
    ("cards.card-2.address", "10.0.1.1", "port 19875 is also that of vpcs.red.interfaces.red-1; change one of the t"),
    ("cards.card-2.address", "fd00::1", "vpcs.green.interfaces.green-2.port: 19876 does not fit into an IPv6 GID; us"),
    ("vpcs.red.groups.efa.rules", [], "vpcs.red.groups.efa.rules: no such key; the known ones here are ingress, egr"),
    ("vpcs.red.groups.efa.ingress.0.port", 1, "ingress[0].port: no such key; the known ones here are protocol, grou"),
    ("vpcs.red.groups.efa.ingress.0.protocol", "sctp", "ingress[0].protocol: 'sctp' should be 'all', 'tcp', 'udp', "),
    ("vpcs.red.groups.efa.ingress.0.group", "z", "vpcs.red.groups.efa.ingress[0].group: z: no such group; there is "),
    ("vpcs.red.groups.efa.egress.0.group", "blue/efa", "egress[0].group: blue/efa: no such VPC; there are red, gree"),
    ("vpcs.red.groups.efa.egress.0.group", "green/efa", "green/efa: red and green are not peered; add [red, green] "),
    ("vpcs.red.groups.efa.egress.0.group", "a/b/c", "'a/b/c' is no group; give its name, or VPC/NAME for a group "),
    ("vpcs.red.groups.efa.egress.0.cidr", "10.0.0.0/8", "egress[0]: a rule names its peers by group or by cidr; giv"),
    ("vpcs.red.groups.efa.egress.0.group", REMOVE, "egress[0]: a rule names its peers by group or by cidr; give one"),
    ("vpcs.red.groups.efa.egress.0.ports", 443, "egress[0]: ports: 443 stands beside protocol all, which has none;"),
    ("vpcs.red.groups.efa.egress.0.icmp_type", 8, "egress[0]: icmp_type: 8 stands beside protocol all, which has n"),
    ("vpcs.red.groups.efa.egress.0.icmp_type", 256, "egress[0].icmp_type: 256"),
    ("peerings", [["red"]], "peerings[0][1]: missing"),
    ("peerings", [["red", "blue"]], "peerings[0]: blue: no such VPC; there are red, green"),
    ("peerings", [["red", "red"]], "peerings[0]: red is peered with itself; remove the pair"),
    ("peerings", [["red", "green"]], "peerings[0]: red/a (172.31.0.0/24) and green/a (172.31.0.0/24) overlap; peered"),
]


@pytest.mark.parametrize(("position", "value", "wanted"), MISTAKES)
def test_mistake_is_one_line(position: str, value: object, wanted: str) -> None:
    assert wanted in error_of(changed(two_vpcs(), position, value))


def test_peering_that_is_given_twice() -> None:
    content = peered_vpcs()
    content["peerings"].append(["green", "red"])
    assert error_of(content) == "peerings[1]: green and red are peered twice; keep one pair"


def test_group_of_a_peered_vpc_must_exist() -> None:
    rule = {"protocol": "all", "group": "green/web"}
    content = changed(peered_vpcs(), "vpcs.red.groups.efa.ingress.0", rule)
    assert error_of(content) == "vpcs.red.groups.efa.ingress[0].group: green/web: no such group; there is efa"
    content["vpcs"]["green"]["groups"]["web"] = {}
    map_of(content)


@pytest.mark.parametrize(
    ("ports", "wanted"), [(443, (443, 443)), ("443", (443, 443)), ("8000-8100", (8000, 8100)), (None, (0, 65535))]
)
def test_ports(ports: object, wanted: tuple[int, int]) -> None:
    rule = RuleFields.model_validate({"protocol": "tcp", "cidr": "0.0.0.0/0", "ports": ports})
    assert rule.port_range == wanted
    assert RuleFields.model_validate(rule.model_dump()) == rule


@pytest.mark.parametrize(
    "ports", [-1, 65536, True, 1.5, "2-1", "1-65536", "0443", "22:30", "0-0443", "0x50", "http", "", "1-2-3", "\u0661"]
)
def test_ports_that_are_none(ports: object) -> None:
    rule = {"protocol": "tcp", "cidr": "0.0.0.0/0", "ports": ports}
    assert "ports: " in error_of(changed(two_vpcs(), "vpcs.red.groups.efa.ingress.0", rule))


def test_sizes_are_bounded() -> None:
    subnets = {f"s{number}": f"10.{number}.0.0/16" for number in range(MAX_SUBNETS + 1)}
    assert "vpcs.red.subnets: " in error_of(changed(two_vpcs(), "vpcs.red.subnets", {"a": "172.31.0.0/24", **subnets}))
    rules = [ALL_WITH_EFA] * (MAX_RULES + 1)
    assert "efa.ingress: " in error_of(changed(two_vpcs(), "vpcs.red.groups.efa.ingress", rules))
    groups = [f"g{number}" for number in range(MAX_GROUPS_OF_INTERFACE + 1)]
    assert "red-1.groups: " in error_of(changed(two_vpcs(), "vpcs.red.interfaces.red-1.groups", groups))


def test_interfaces_of_all_vpcs_together_are_bounded() -> None:
    content = two_vpcs()
    for number, name in enumerate(("red", "green")):
        content["vpcs"][name]["subnets"] = {"a": "172.31.0.0/16"}
        content["vpcs"][name]["interfaces"] = {
            f"i{index}": interface(f"172.31.{1 + index // 250}.{1 + index % 250}", port=1 + index + 30000 * number)
            for index in range(MAX_INTERFACES // 2)
        }
    assert len(map_of(content).vpcs["green"].interfaces) == MAX_INTERFACES // 2
    content["vpcs"]["green"]["interfaces"]["more"] = interface("172.31.200.1", port=29999)
    assert error_of(content) == f"vpcs: {MAX_INTERFACES + 1} interfaces; a map has at most {MAX_INTERFACES}: make two"


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"", "holds no map; give cards: and vpcs:"),
        (b"- red", "holds no map"),
        (b"cards: {a: {}}", "cards.a.address: missing"),
        (b"\xff\xfe\x00", "not YAML"),
        (b"vpcs: {1: {id: 1}}", "vpcs[1].[key]: 1 should be a valid string; put it in quotes"),
    ],
)
def test_file_that_is_broken_is_one_line_with_its_name(tmp_path: Path, content: bytes, wanted: str) -> None:
    path = tmp_path / "vpc.yaml"
    path.write_bytes(content)
    with pytest.raises(VpcError, match=f"^{re.escape(str(path))}: .*{re.escape(wanted)}"):
        load(path)


def test_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(VpcError, match="cannot be read: No such file or directory; name the control plane's YAML"):
        load(tmp_path / "none.yaml")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=12,
)
_positions = st.sampled_from([position for position, _, _ in MISTAKES])


@given(position=_positions, value=_json)
def test_any_value_anywhere_is_a_map_or_one_line(position: str, value: object) -> None:
    try:
        assert isinstance(checked_untrusted(changed(two_vpcs(), position, value)), VpcMap)
    except VpcError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - either is right


@given(content=st.binary(max_size=200) | st.text(alphabet="abc:{}[]-&*!|>\n \t'\"#", max_size=100).map(str.encode))
def test_any_content_is_a_map_or_one_error(content: bytes) -> None:
    try:
        assert isinstance(parse(content, name="f"), VpcMap)
    except VpcError as error:
        assert str(error).startswith("f: ")  # noqa: PT017 - either is right


@given(networks=st.lists(st.tuples(st.integers(0, 255), st.integers(20, 26)), min_size=2, max_size=6))
def test_subnets_overlap_exactly_if_two_have_an_address_in_common(networks: list[tuple[int, int]]) -> None:
    import ipaddress  # noqa: PLC0415 - of this oracle alone

    ranges = [ipaddress.ip_network(f"10.0.{third}.{third}/{length}", strict=False) for third, length in networks]
    overlap = any(a.overlaps(b) for index, a in enumerate(ranges) for b in ranges[index + 1 :])
    content = {"vpcs": {"red": vpc(1, subnets={f"s{index}": str(each) for index, each in enumerate(ranges)})}}
    if overlap:
        assert "overlap; give each subnet its own range" in error_of(content)
    else:
        map_of(content)
