"""srd.io.syscalls: addresses in the kernel's form, system calls that Python lacks."""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.io.syscalls import (
    IOVEC,
    MMSGHDR,
    SOCKADDR_BYTES,
    Address,
    pack_address,
    recvmmsg,
    sendmmsg,
    unpack_address,
)
from tests.patience import PATIENCE_S

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


def messages_of(buffers: list[np.ndarray[tuple[int], np.dtype[np.uint8]]], name: bytes | None) -> tuple[object, ...]:
    """One message for each buffer; returns (messages, objects that must stay alive)."""
    iov = np.zeros(len(buffers), IOVEC)
    iov["base"] = [buffer.ctypes.data for buffer in buffers]
    iov["length"] = [len(buffer) for buffer in buffers]
    messages = np.zeros(len(buffers), MMSGHDR)
    messages["iov"] = iov.ctypes.data + np.arange(len(buffers), dtype=np.uint64) * np.uint64(IOVEC.itemsize)
    messages["iovlen"] = 1
    names = np.frombuffer(bytearray(name or bytes(SOCKADDR_BYTES)), np.uint8)
    messages["name"], messages["namelen"] = names.ctypes.data, len(names)
    return messages, iov, names, buffers


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_sendmmsg__each_message_is_a_datagram(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as one, socket.socket(family, socket.SOCK_DGRAM) as two:
        two.bind((host, 0))
        two.settimeout(PATIENCE_S)
        target: Address = two.getsockname()
        out = [np.full(size, value, np.uint8) for value, size in enumerate((1, 100, 1400))]
        sent = messages_of(out, pack_address(target))
        assert sendmmsg(one.fileno(), messages=sent[0].ctypes.data, count=3) == 3  # type: ignore[attr-defined]
        assert [two.recv(2000) for _ in out] == [buffer.tobytes() for buffer in out]


def test_recvmmsg__lengths_source_and_nothing_more() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two,
    ):
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        room = [np.zeros(50, np.uint8) for _ in range(4)]
        messages, _, names, _ = messages_of(room, None)
        assert isinstance(messages, np.ndarray)
        assert isinstance(names, np.ndarray)
        pointer = messages.ctypes.data
        assert recvmmsg(two.fileno(), messages=pointer, count=4) == 0
        for size in (0, 7, 50):
            one.sendto(b"x" * size, two.getsockname())
        received = 0
        while received < 3:
            assert select.select([two], [], [], 5)[0]
            at = pointer + received * MMSGHDR.itemsize
            received += recvmmsg(two.fileno(), messages=at, count=4 - received)
        assert messages["length"][:3].tolist() == [0, 7, 50]
        assert unpack_address(names.tobytes()) == one.getsockname()
        assert recvmmsg(two.fileno(), messages=pointer, count=4) == 0


@pytest.mark.parametrize("call", [sendmmsg, recvmmsg])
def test_messages__bad_flow(call: Callable[..., int]) -> None:
    with pytest.raises(OSError, match="EBADF") as caught:
        call(-1, messages=0, count=1)
    assert caught.value.errno == errno.EBADF
