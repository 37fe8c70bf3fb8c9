"""GIDs: which address has which, and bytes that are no peer's."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nitro_emu import gid
from nitro_emu.errors import AbiError


@pytest.mark.parametrize(
    ("host", "port", "text"),
    [
        ("10.0.0.1", 19875, "fe80:4da3:0000:0000:0000:ffff:0a00:0001"),
        ("127.0.0.1", 1, "fe80:0001:0000:0000:0000:ffff:7f00:0001"),
        ("2001:db8::1", 19875, "2001:0db8:0000:0000:0000:0000:0000:0001"),
        ("::1", 19875, "0000:0000:0000:0000:0000:0000:0000:0001"),
    ],
)
def test_examples(host: str, port: int, text: str) -> None:
    made = gid.gid_of(host, port=port)
    assert len(made) == gid.GID_BYTES
    assert gid.gid_text(made) == text
    assert gid.address_of_untrusted(made) == (host, port)


@pytest.mark.parametrize(
    ("host", "port", "field"),
    [
        ("localhost", 19875, "host"),
        ("", 19875, "host"),
        ("10.0.0.1", 0, "port"),
        ("10.0.0.1", 65536, "port"),
        ("2001:db8::1", 19876, "port"),
        ("fe80:4da3::ffff:a00:1", 19875, "host"),  # would be taken for 10.0.0.1
        ("fe80::1", 19875, "gid"),
        ("fe80::1%eth0", 19875, "gid"),
        ("ff02::1", 19875, "gid"),
        ("::", 19875, "gid"),
        ("::ffff:10.0.0.1", 19875, "gid"),
        ("0.0.0.0", 19875, "gid"),  # noqa: S104 - not bound
        ("224.0.0.1", 19875, "gid"),
        ("255.255.255.255", 19875, "gid"),
    ],
)
def test_gid_of__refused(host: str, port: int, field: str) -> None:
    with pytest.raises(AbiError) as caught:
        gid.gid_of(host, port=port)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@given(data=st.binary(max_size=17) | st.binary(min_size=16, max_size=16))
@example(bytes(16))
@example(b"\xff" * 16)
@example(bytes.fromhex("fe80000000000000 0000ffff0a000001"))
def test_random_bytes_are_an_address_or_refused(data: bytes) -> None:
    try:
        host, port = gid.address_of_untrusted(data)
    except AbiError as error:
        assert error.field == "gid"  # noqa: PT017 - either may happen
    else:
        assert gid.gid_of(host, port=port) == data


@given(address=st.integers(1 << 24, 223 << 24), port=st.integers(1, 65535))
def test_ipv4__round_trip(address: int, port: int) -> None:
    host = str(IPv4Address(address))
    assert gid.address_of_untrusted(gid.gid_of(host, port=port)) == (host, port)
