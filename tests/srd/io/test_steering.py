"""srd.io.steering: the kernel sends each datagram to the socket that our rules name."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from srd.io.socket import open_socket
from srd.io.steering import MAX_RULES, Rule, Steering, program
from srd.proto.wire import PacketType
from tests.srd.io.exchange import LOOPBACK, wait_readable

CONTEXT = 0x1122334455667788
FAMILIES = pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])


def packet(context: int = 7, *, kind: int = PacketType.DATA) -> bytes:
    return bytes([1, kind, 0, 0]) + bytes(4) + struct.pack(">Q", context) + bytes(100)


class Desk:
    """A group of sockets by name, and two senders."""

    def __init__(self, family: socket.AddressFamily) -> None:
        self.sockets = {"first": open_socket(LOOPBACK[family], family=family)}
        self.steering = Steering(self.sockets["first"])
        self.senders = []
        for _ in range(2):
            sender = socket.socket(family, socket.SOCK_DGRAM)
            sender.bind(LOOPBACK[family])
            self.senders.append(sender)
        self.host = self.senders[0].getsockname()[0]

    def add(self, name: str) -> socket.socket:
        self.sockets[name] = self.steering.add()
        return self.sockets[name]

    def remove(self, name: str) -> None:
        sock = self.sockets.pop(name)
        self.steering.divert(sock)
        self.steering.remove(sock)

    def goes_to(self, data: bytes, *, sender: int = 0) -> str:
        """Send a datagram; return the name of the socket that has it (loopback delivers at once)."""
        self.senders[sender].sendto(data, self.sockets["first"].getsockname())
        found = []
        for name, sock in self.sockets.items():
            try:
                assert sock.recv(1000) == data
                found.append(name)
            except BlockingIOError:
                continue
        (name,) = found
        return name


@contextmanager
def desk(family: socket.AddressFamily) -> Iterator[Desk]:
    made = Desk(family)
    try:
        yield made
    finally:
        for sock in (*made.sockets.values(), *made.senders):
            sock.close()


@FAMILIES
def test_steer__a_peer(family: socket.AddressFamily) -> None:
    with desk(family) as made:
        made.steering.steer(Rule(context=CONTEXT), made.add("queue"))
        assert made.goes_to(packet(CONTEXT)) == "queue"
        for bit in (0, 31, 32, 63):
            assert made.goes_to(packet(CONTEXT ^ 1 << bit)) == "first"


@FAMILIES
def test_steer__only_data(family: socket.AddressFamily) -> None:
    """What the endpoint says and hears besides goes on as before; so does what is no packet at all."""
    with desk(family) as made:
        made.steering.steer(Rule(), made.add("queue"))
        assert made.goes_to(packet()) == "queue"
        assert {made.goes_to(packet(kind=kind)) for kind in PacketType if kind is not PacketType.DATA} == {"first"}
        assert [made.goes_to(data) for data in (b"", b"x", packet()[:5])] == ["first", "first", "queue"]


@FAMILIES
def test_steer__by_address_and_port(family: socket.AddressFamily) -> None:
    with desk(family) as made:
        other = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"
        made.steering.steer(Rule(host=other), made.add("nobody"))
        made.steering.steer(Rule(host=made.host, port=made.senders[1].getsockname()[1]), made.add("flow"))
        assert made.goes_to(packet(), sender=0) == "first"
        assert made.goes_to(packet(), sender=1) == "flow"
        made.steering.steer(Rule(host=made.host), made.add("host"))
        assert made.goes_to(packet(), sender=0) == "host"
        assert made.goes_to(packet(), sender=1) == "flow", "the older rule comes first"


def test_steer__ipv4_on_an_ipv6_socket() -> None:
    with open_socket(("::", 0), family=socket.AF_INET6) as first:
        steering = Steering(first)
        with steering.add() as queue, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            steering.steer(Rule(host="127.0.0.1"), queue)
            sender.sendto(packet(), ("127.0.0.1", first.getsockname()[1]))
            wait_readable(queue)
            assert queue.recv(1000) == packet()


@FAMILIES
def test_remove__the_others_keep_their_own(family: socket.AddressFamily) -> None:
    """The last takes the place of the one that leaves: in the kernel, and here."""
    with desk(family) as made:
        names = ("a", "b", "c", "d")
        for number, name in enumerate(names):
            made.steering.steer(Rule(context=number), made.add(name))
        made.remove("b")
        assert [made.goes_to(packet(number)) for number in range(5)] == ["a", "first", "c", "d", "first"]
        made.remove("a")
        made.steering.steer(Rule(context=1), made.add("e"))
        assert [made.goes_to(packet(number)) for number in range(4)] == ["first", "e", "c", "d"]
        for name in ("c", "d", "e"):
            made.remove(name)
        assert made.goes_to(packet(1)) == "first"


def test_forget__the_rules_of_a_peer() -> None:
    with desk(socket.AF_INET) as made:
        queue = made.add("queue")
        for context in (1, 2):
            made.steering.steer(Rule(context=context), queue)
        made.steering.forget(1)
        made.steering.forget(3)
        assert [made.goes_to(packet(context)) for context in (1, 2)] == ["first", "queue"]


def test_steer__as_many_rules_as_there_may_be() -> None:
    with desk(socket.AF_INET6) as made:
        queue = made.add("queue")
        for number in range(MAX_RULES):
            made.steering.steer(Rule(context=number), queue)
        assert made.goes_to(packet(MAX_RULES - 1)) == "queue"
        assert made.goes_to(packet(MAX_RULES)) == "first"
        with pytest.raises(ValueError, match="200 rules are the most"):
            made.steering.steer(Rule(), queue)


def test_add__a_port_that_is_not_shared_stays_taken() -> None:
    with desk(socket.AF_INET) as made:
        made.add("queue")
        with pytest.raises(OSError, match="Address already in use"):
            open_socket(made.sockets["first"].getsockname(), family=socket.AF_INET)


def test_program__ends_in_the_first_socket_for_all_the_rest() -> None:
    code = [struct.unpack("=HBBI", program([])[at : at + 8]) for at in range(0, len(program([])), 8)]
    assert code[-1] == (0x06, 0, 0, 0)
    assert all(at + max(jump[1], jump[2]) + 1 < len(code) for at, jump in enumerate(code) if jump[0] == 0x15)
