"""srd.names: all addresses of a name, in the order in which they are tried, and as a socket wants them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from srd.names import Resolved, reachable, resolve

V4, V6 = socket.AF_INET, socket.AF_INET6
Hosts = Callable[..., None]


def six(number: int) -> Resolved:
    return V6, (f"fd00::{number}", 7, 0, 0)


def four(number: int) -> Resolved:
    return V4, (f"192.0.2.{number}", 7)


@pytest.mark.parametrize(
    ("found", "order"),
    [
        ([six(1), six(2), six(3), four(1), four(2)], [six(1), four(1), six(2), four(2), six(3)]),
        ([four(1), six(1), six(1)], [four(1), six(1)]),
        ([four(2), four(1)], [four(2), four(1)]),
    ],
)
async def test_resolve__the_families_take_turns(hosts: Hosts, found: list[Resolved], order: list[Resolved]) -> None:
    hosts(name=[address[0] for _, address in found])
    assert await resolve("name", port=7, passive=False) == order


async def test_resolve__an_empty_host_is_any_address_for_a_listener() -> None:
    for family, address in await resolve("", port=7, passive=True):
        assert address[:2] == (("::" if family == V6 else "0.0.0.0"), 7)  # noqa: S104 - a text


@pytest.mark.parametrize(
    ("family", "addresses"),
    [(V4, [("192.0.2.1", 7)]), (V6, [("fd00::1", 7, 0, 0), ("::ffff:192.0.2.1", 7, 0, 0)])],
)
def test_reachable__a_socket_of_ipv6_sends_to_both(family: socket.AddressFamily, addresses: list[Any]) -> None:
    assert reachable([six(1), four(1)], family=family) == addresses
