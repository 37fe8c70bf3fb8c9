"""srd.io.steering: the kernel delivers each datagram to the socket of its rule."""

from __future__ import annotations

import select
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from srd.io.socket import open_socket
from srd.io.steering import MAX_RULES, Rule, Steering
from srd.proto.wire.data import PacketType
from tests.patience import PATIENCE_S
from tests.srd.io.exchange import LOOPBACK, wait_readable

CONTEXT = 0x1122334455667788
FAMILIES = pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])


def packet(context: int = 7, *, kind: int = PacketType.DATA) -> bytes:
    return bytes([1, kind, 0, 0]) + bytes(4) + struct.pack(">Q", context) + bytes(100)


class SteeredSockets:
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
        self.steering.redirect(sock)
        self.steering.remove(sock)

    def goes_to(self, data: bytes, *, sender: int = 0) -> str:
        """Send a datagram; return the name of the socket that receives it."""
        self.senders[sender].sendto(data, self.sockets["first"].getsockname())
        assert select.select([*self.sockets.values()], [], [], PATIENCE_S)[0]
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
def steered_sockets(family: socket.AddressFamily) -> Iterator[SteeredSockets]:
    made = SteeredSockets(family)
    try:
        yield made
    finally:
        for sock in (*made.sockets.values(), *made.senders):
            sock.close()


@FAMILIES
def test_steer__a_peer(family: socket.AddressFamily) -> None:
    with steered_sockets(family) as made:
        made.steering.steer(Rule(context=CONTEXT), made.add("queue"))
        assert made.goes_to(packet(CONTEXT)) == "queue"
        for bit in (0, 31, 32, 63):
            assert made.goes_to(packet(CONTEXT ^ 1 << bit)) == "first"


@FAMILIES
def test_steer__only_data(family: socket.AddressFamily) -> None:
    """Other traffic of the endpoint and malformed datagrams go to the first socket."""
    with steered_sockets(family) as made:
        made.steering.steer(Rule(), made.add("queue"))
        assert made.goes_to(packet()) == "queue"
        assert {made.goes_to(packet(kind=kind)) for kind in PacketType if kind is not PacketType.DATA} == {"first"}
        assert [made.goes_to(data) for data in (b"", b"x", packet()[:5])] == ["first", "first", "queue"]


@FAMILIES
def test_steer__by_address_and_port(family: socket.AddressFamily) -> None:
    with steered_sockets(family) as made:
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
def test_remove__the_other_sockets_keep_their_traffic(family: socket.AddressFamily) -> None:
    """The last socket takes the index of the removed one, in the kernel and in `Steering`."""
    with steered_sockets(family) as made:
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


def test_remove_peer__the_rules_of_a_peer() -> None:
    with steered_sockets(socket.AF_INET) as made:
        queue = made.add("queue")
        for context in (1, 2):
            made.steering.steer(Rule(context=context), queue)
        made.steering.remove_peer(1)
        made.steering.remove_peer(3)
        assert [made.goes_to(packet(context)) for context in (1, 2)] == ["first", "queue"]


def test_steer__the_most_rules() -> None:
    with steered_sockets(socket.AF_INET6) as made:
        queue = made.add("queue")
        for number in range(MAX_RULES):
            made.steering.steer(Rule(context=number), queue)
        assert made.goes_to(packet(MAX_RULES - 1)) == "queue"
        assert made.goes_to(packet(MAX_RULES)) == "first"
        with pytest.raises(ValueError, match="200 rules are the most"):
            made.steering.steer(Rule(), queue)


def test_add__a_port_without_a_group_stays_exclusive() -> None:
    with steered_sockets(socket.AF_INET) as made:
        made.add("queue")
        with pytest.raises(OSError, match="Address already in use"):
            open_socket(made.sockets["first"].getsockname(), family=socket.AF_INET)


JOIN = """
import socket, sys
sock = socket.socket(int(sys.argv[1]), socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
try:
    sock.bind((sys.argv[2], int(sys.argv[3])))
except OSError as error:
    print(error.strerror, flush=True)
else:
    print("joined", flush=True)
    sys.stdin.read(1)
    sock.setblocking(False)
    try:
        print(len(sock.recv(1000)), flush=True)
    except BlockingIOError:
        print("received nothing", flush=True)
"""


@contextmanager
def joining(first: socket.socket) -> Iterator[tuple[str, Callable[[], str]]]:
    """Have another process try to join a socket's port; give the result, and a function for what it received."""
    host, port, *_ = first.getsockname()
    command = [sys.executable, "-c", JOIN, str(int(first.family)), host, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def received() -> str:
            stdin.write("?")
            stdin.flush()
            return stdout.readline().strip()

        try:
            yield stdout.readline().strip(), received
        finally:
            process.kill()


@FAMILIES
def test_add__a_process_that_has_joined_receives_nothing_and_is_detected(family: socket.AddressFamily) -> None:
    with steered_sockets(family) as made:
        for number, name in enumerate(("a", "b")):
            made.steering.steer(Rule(context=number), made.add(name))
        with joining(made.sockets["first"]) as (outcome, received):
            assert outcome == "joined", "else the kernel refuses it"
            with pytest.raises(OSError, match="a process has joined port"):
                made.add("c")
            assert [made.goes_to(packet(number)) for number in range(3)] == ["a", "b", "first"]
            with pytest.warns(RuntimeWarning, match="a process has joined the port"):
                made.remove("a")
            assert [made.goes_to(packet(number)) for number in range(3)] == ["first"] * 3
            assert received() == "received nothing"


@FAMILIES
def test_remove__the_port_is_exclusive_again(family: socket.AddressFamily) -> None:
    with steered_sockets(family) as made:
        for _ in range(2):
            made.steering.steer(Rule(context=1), made.add("queue"))
            assert made.goes_to(packet(1)) == "queue"
            made.remove("queue")
            with joining(made.sockets["first"]) as (outcome, _):
                assert outcome == "Address already in use"
            assert made.goes_to(packet(1)) == "first"
