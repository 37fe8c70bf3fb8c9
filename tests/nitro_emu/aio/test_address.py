"""Addresses of queue pairs, and their text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.abi.gid import gid_of
from nitro_emu.aio import QpAddress
from nitro_emu.errors import AbiError

GID = gid_of("10.0.1.1", port=19875)


def test_text__ipv4_and_ipv6() -> None:
    assert QpAddress(GID, 12, 0x5F3A9C01).text() == "10.0.1.1:19875/12/5f3a9c01"
    assert QpAddress(gid_of("fd00::1", port=19875), 65535, 0).text() == "[fd00::1]:19875/65535/00000000"


@given(
    st.ip_addresses(v=4).filter(lambda ip: not ip.is_multicast and not ip.is_unspecified and int(ip) != 0xFFFFFFFF),
    st.integers(1, 65535),
    st.integers(1, 65535),
    st.integers(0, (1 << 32) - 1),
)
def test_text__names_the_same_address(ip: object, port: int, qpn: int, qkey: int) -> None:
    address = QpAddress(gid_of(str(ip), port=port), qpn, qkey)
    assert QpAddress.of_text_untrusted(address.text()) == address


@given(st.text() | st.from_regex(r"[0-9.:\[\]a-f]{1,30}/[0-9]{1,6}/[0-9a-f]{1,9}", fullmatch=True))
def test_of_text_untrusted__raises_nothing_else(text: str) -> None:
    try:
        address = QpAddress.of_text_untrusted(text)
    except AbiError:
        return
    assert QpAddress.of_text_untrusted(address.text()) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.0.1.1:19875",
        "10.0.1.1:19875/12",
        "10.0.1.1:19875/0/5f3a9c01",
        "10.0.1.1:19875/65536/5f3a9c01",
        "10.0.1.1:0/12/5f3a9c01",
        "10.0.1.1:65536/12/5f3a9c01",
        "10.0.1.1:19875/12/5f3a9c0",
        "10.0.1.1:19875/12/5f3a9c01 ",
        "10.0.1.1:19875/١٢/5f3a9c01",
        "host:19875/12/5f3a9c01",
        "fd00::1:19875/12/5f3a9c01",
        "[fd00::1]:7000/12/5f3a9c01",
        "224.0.0.1:19875/12/5f3a9c01",
    ],
)
def test_of_text_untrusted__bad_flow(text: str) -> None:
    with pytest.raises(AbiError):
        QpAddress.of_text_untrusted(text)


@pytest.mark.parametrize(("qpn", "qkey"), [(0, 0), (65536, 0), (1, -1), (1, 1 << 32)])
def test_init__numbers_that_no_queue_pair_has_bad_flow(qpn: int, qkey: int) -> None:
    with pytest.raises(AbiError):
        QpAddress(GID, qpn, qkey)
