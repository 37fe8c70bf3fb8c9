"""Addresses as text, and link-local scopes."""

from __future__ import annotations

import socket

import pytest

from srd.io.addresses import canonical, host_text, split_zone
from srd.io.syscalls import Address

LOOPBACK = socket.if_nametoindex("lo")


@pytest.mark.parametrize(
    ("host", "parted"),
    [
        ("192.0.2.1", ("192.0.2.1", 0)),
        ("::1", ("::1", 0)),
        ("fe80::1%lo", ("fe80::1", LOOPBACK)),
        (f"fe80::1%{LOOPBACK}", ("fe80::1", LOOPBACK)),
        ("", ("", 0)),
    ],
)
def test_split_zone(host: str, parted: tuple[str, int]) -> None:
    assert split_zone(host) == parted


@pytest.mark.parametrize("host", ["fe80::1%no-such-one", "fe80::1%", "fe80::1%\u0667"])
def test_split_zone__bad_flow(host: str) -> None:
    with pytest.raises(OSError, match="no interface with this name"):
        split_zone(host)


@pytest.mark.parametrize(
    ("address", "scope", "wanted"),
    [
        (("192.0.2.1", 7), 0, ("192.0.2.1", 7)),
        (("fe80::1", 7, 99, 2), 0, ("fe80::1", 7, 0, 2)),
        (("fe80::1", 7, 0, 0), 3, ("fe80::1", 7, 0, 3)),
        (("fe80::1%eth0", 7, 0, 2), 2, ("fe80::1", 7, 0, 2)),
    ],
)
def test_canonical(address: Address, scope: int, wanted: Address) -> None:
    assert canonical(address, scope=scope) == wanted


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (("192.0.2.1", 7), "192.0.2.1"),
        (("2001:db8::1", 7, 0, 0), "2001:db8::1"),
        (("fe80::1", 7, 0, LOOPBACK), "fe80::1%lo"),
        (("fe80::1", 7, 0, 999_999), "fe80::1%999999"),
    ],
)
def test_host_text(address: Address, text: str) -> None:
    assert host_text(address) == text
