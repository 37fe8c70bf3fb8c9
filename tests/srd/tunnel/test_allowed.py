from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.errors import UsageError
from srd.proto.base.security import SecurityMode
from srd.secure.config import Identity
from srd.secure.keys import public_text
from srd.tunnel.allowed import AddressPolicy, AllowedAddresses, host_network, is_within, read_peers
from srd.tunnel.greeting import Address, Network

KEYS = [bytes([each]) * 32 for each in range(3)]
OWN = [ipaddress.ip_interface("10.88.0.1/24"), ipaddress.ip_interface("fd88::1/64")]


def identity(key: bytes) -> Identity:
    return Identity(SecurityMode.KEYS, key)


def addresses(*texts: str) -> list[Address]:
    return [ipaddress.ip_address(each) for each in texts]


def networks(*texts: str) -> list[Network]:
    return [ipaddress.ip_network(each) for each in texts]


@st.composite
def nested_networks(draw: st.DrawFn) -> Network:
    """Networks that often contain each other."""
    if draw(st.booleans()):
        return ipaddress.ip_network((draw(st.integers(0, 255)) << 24, draw(st.integers(0, 8))), strict=False)
    bits = draw(st.integers(0, 128))
    return ipaddress.ip_network((draw(st.sampled_from([0, 1 << 127, 1 << 64, 1])), bits), strict=False)


@given(
    st.lists(st.tuples(st.integers(0, 3), nested_networks())),
    st.lists(st.ip_addresses(), min_size=1),
    st.integers(0, 3),
)
def test_allowed_addresses__the_longest_network_decides(
    added: list[tuple[int, Network]], asked: list[Address], removed: int
) -> None:
    table = AllowedAddresses[int]()
    owners: dict[Network, int] = {}
    for peer, network in added:
        table.add(peer, [network])
        owners[network] = peer
    for leaves in (None, removed):
        if leaves is not None:
            table.remove(leaves)
            owners = {network: peer for network, peer in owners.items() if peer != leaves}
        for address in asked:
            found = [network for network in owners if address in network]
            expected = owners[max(found, key=lambda each: each.prefixlen)] if found else None
            assert table.find(address.packed) == expected
            assert table.find(address.packed) == expected, "from the cache"


def test_admission__any_key_may_have_an_address_of_each_network() -> None:
    allow = AddressPolicy(OWN, peers=None).networks_untrusted
    assert allow(identity(KEYS[0]), addresses("10.88.0.2", "fd88::2")) == networks("10.88.0.2/32", "fd88::2/128")
    for wanted, why in (
        (["10.88.0.1"], "10.88.0.1 is not a free address of 10.88.0.0/24, fd88::/64"),
        (["10.89.0.2"], "10.89.0.2 is not a free address"),
        (["10.88.0.4", "10.88.0.5"], "more than one address of a kind"),
    ):
        assert why in str(allow(identity(KEYS[0]), addresses(*wanted)))


def test_admission__the_networks_of_its_key() -> None:
    peers = {KEYS[0]: networks("10.88.0.2/32", "10.1.0.0/16")}
    allow = AddressPolicy(OWN, peers=peers).networks_untrusted
    assert allow(identity(KEYS[0]), addresses("10.88.0.2")) == peers[KEYS[0]]
    assert allow(identity(KEYS[0]), addresses("10.88.0.3")) == "10.88.0.3 is not an address of this key"
    assert allow(identity(KEYS[1]), addresses("10.88.0.2")) == "this key is not among the listener's peers"


def test_read_peers(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    path.write_text(f"# comment\n\n{public_text(KEYS[0])} 10.88.0.2,10.1.0.0/16\n{public_text(KEYS[1])} fd88::2\n")
    assert read_peers(path) == {
        KEYS[0]: tuple(networks("10.88.0.2", "10.1.0.0/16")),
        KEYS[1]: tuple(networks("fd88::2")),
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (public_text(KEYS[0]), "line 1: .* a line is: srd-x25519 KEY ADDRESS"),
        (f"{public_text(KEYS[0])} 10.88.0.2/8", "has host bits set"),
        (f"{public_text(KEYS[0])} host", "'host' does not appear to be"),
    ],
)
def test_read_peers__a_bad_line(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "peers"
    path.write_text(line + "\n")
    with pytest.raises(UsageError, match=why):
        read_peers(path)


def test_read_peers__no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file; make it"):
        read_peers(tmp_path / "none")


def test_is_within() -> None:
    inner, outer, other = networks("10.1.0.0/16", "10.0.0.0/8", "::/0")
    assert is_within(inner, outer)
    assert is_within(host_network(inner.network_address), inner)
    assert not is_within(outer, inner)
    assert not is_within(inner, other)
    assert not is_within(other, inner)
