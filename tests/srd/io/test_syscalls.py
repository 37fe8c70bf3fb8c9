"""srd.io.syscalls: addresses in the kernel's form, system calls that Python lacks."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.io.syscalls import (
    SOCKADDR_BYTES,
    pack_address,
    recvmmsg,
    sendmmsg,
    unpack_address,
)

PORTS = st.integers(0, 65535)


# -- addresses ------------------------------------------------------------------------------------------------------


@given(host=st.integers(0, 2**32 - 1), port=PORTS)
def test_address__ipv4_round_trip(host: int, port: int) -> None:
    address = (str(IPv4Address(host)), port)
    packed = pack_address(address)
    assert len(packed) == 16
    assert unpack_address(packed.ljust(SOCKADDR_BYTES, b"\xff")) == address


@given(host=st.integers(0, 2**128 - 1), port=PORTS, flow=st.integers(0, 2**20 - 1), scope=st.integers(0, 2**32 - 1))
def test_address__ipv6_round_trip(host: int, port: int, flow: int, scope: int) -> None:
    address = (socket.inet_ntop(socket.AF_INET6, IPv6Address(host).packed), port, flow, scope)
    packed = pack_address(address)
    assert len(packed) == SOCKADDR_BYTES
    assert unpack_address(packed) == (*address[:2], 0, scope), "the flow label is not part of the address"


def test_address__zone_in_the_name_is_the_scope_in_the_number() -> None:
    assert unpack_address(pack_address(("fe80::1%eth7", 5, 0, 7))) == ("fe80::1", 5, 0, 7)


# -- sendmmsg and recvmmsg ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [sendmmsg, recvmmsg])
def test_messages__bad_flow(call: Callable[..., int]) -> None:
    with pytest.raises(OSError, match="EBADF") as caught:
        call(-1, messages=0, count=1)
    assert caught.value.errno == errno.EBADF
