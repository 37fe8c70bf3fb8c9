from __future__ import annotations

import ipaddress
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.errors import PacketError
from srd.tunnel.greeting import (
    MAX_ADDRESSES,
    MAX_GREETING_BYTES,
    hello,
    hello_untrusted,
    refusal,
    welcome,
    welcome_untrusted,
)

addresses = st.lists(st.ip_addresses(), min_size=1, max_size=8)
_leaves = st.none() | st.booleans() | st.integers() | st.text() | st.ip_addresses().map(str)
_trees = st.recursive(_leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
_fields = st.fixed_dictionaries({}, optional=dict.fromkeys(("tunnel", "addresses", "networks", "refused"), _trees))


@given(addresses)
def test_hello__round_trip(wanted: list[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> None:
    assert hello_untrusted(hello(wanted)) == wanted


@given(addresses)
def test_welcome__round_trip(own: list[ipaddress.IPv4Address | ipaddress.IPv6Address]) -> None:
    networks = [ipaddress.ip_network(each) for each in own]
    assert welcome_untrusted(welcome(networks)) == networks
    assert welcome_untrusted(refusal("no room")) == "no room"


@given(
    st.binary()
    | _trees.map(lambda tree: json.dumps(tree).encode())
    | _fields.map(lambda tree: json.dumps(tree).encode())
)
def test_untrusted__any_message(message: bytes) -> None:
    for parse in (hello_untrusted, welcome_untrusted):
        with suppress(PacketError):
            found = parse(message)
            assert found
            assert isinstance(found, str) or len(found) <= MAX_ADDRESSES


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b" " * (MAX_GREETING_BYTES + 1), "a greeting of 16385 bytes"),
        (b'{"tunnel": 2, "addresses": ["10.0.0.1"]}', "another version"),
        (b'{"tunnel": 1, "addresses": []}', "without addresses"),
        (b'{"tunnel": 1, "addresses": [1]}', "no text"),
        (b'{"tunnel": 1, "addresses": ["10.0.0.300"]}', "10.0.0.300"),
        (b'{"tunnel": 1, "addresses": ["fd88::2%x"]}', "a scope"),
        (b"[" * 10_000, "no JSON"),
    ],
)
def test_hello_untrusted__refused(message: bytes, why: str) -> None:
    with pytest.raises(PacketError, match=why):
        hello_untrusted(message)
