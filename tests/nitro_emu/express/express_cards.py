"""Tenants' network interfaces on real cards: namespaces, and TCP connections between them with every byte compared."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from netns.backends.relay.tap import inside
from tests.nitro_emu.cards import Card
from tests.nitro_emu.pattern import pattern
from tests.nitro_emu.vpc_cards import Vf
from tests.patience import PATIENCE_S, wait_until
from tests.programs import run_to_end

LOW, HIGH = "172.31.0.5", "172.31.0.6"
SUBNET = "172.31.0.0/16"
LOW_IPV6, HIGH_IPV6 = "fd31::5", "fd31::6"
SUBNET_IPV6 = "fd31::/64"
ALL = [{"protocol": "all", "cidr": "0.0.0.0/0"}, {"protocol": "all", "cidr": "::/0"}]


class Tenant:
    """A namespace with a tenant's interface, and the card that it is on."""

    def __init__(self, netns: str, card: Card, vf: str, *, address: str) -> None:
        self.netns, self.card, self.vf, self.address = netns, card, vf, address

    def stream_socket(self) -> socket.socket:
        with inside(self.netns):
            made = socket.socket(socket.AF_INET6 if ":" in self.address else socket.AF_INET, socket.SOCK_STREAM)
        made.settimeout(PATIENCE_S)
        return made

    def listener(self, port: int) -> socket.socket:
        made = self.stream_socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((self.address, port))
        made.listen()
        return made

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return run_to_end(["ip", "netns", "exec", self.netns, *command])

    def ping(self, to: str, *options: str) -> bool:
        return self.run("ping", "-n", "-c", "1", "-w", "10", *options, to).returncode == 0

    def is_silent(self, to: str, *options: str) -> bool:
        """Whether a ping gets no answer within a second."""
        return not self.ping(to, "-w", "1", *options)

    def stats(self) -> dict[str, Any]:
        return self.card.stats(self.vf)

    def dropped(self, reason: str) -> int:
        count: int = self.stats()["dropped"].get(reason, 0)
        return count


def vf_of(number: int, vpc: str, address: str, *, netns: str | int) -> Vf:
    subnet = SUBNET_IPV6 if ":" in address else SUBNET
    more = f"kind: ena-express, interface: {{subnet: '{subnet}', netns: {netns}, name: eth{number}}}"
    return Vf(f"ena_{number}", vpc, address, more=more)


@contextmanager
def sleeping(netns: str) -> Iterator[int]:
    with subprocess.Popen(["ip", "netns", "exec", netns, "sleep", "infinity"]) as process:  # ip executes it
        wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")  # sleep in its namespace
        try:
            yield process.pid
        finally:
            process.kill()


class Connection:
    """A TCP connection between two tenants; `exchange` sends bytes both ways at once, and compares all of them."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server

    def exchange(self, number: int, *, length: int = 3_000_000) -> None:
        there, back = (pattern(2 * number + side, length=length).tobytes() for side in (0, 1))
        senders = [
            threading.Thread(target=end.sendall, args=(data,))
            for end, data in ((self.client, there), (self.server, back))
        ]
        for sender in senders:
            sender.start()
        found = [read_all(end, length) for end in (self.server, self.client)]
        for sender in senders:
            sender.join()
        assert found == [there, back]


@contextmanager
def connection(left: Tenant, right: Tenant, *, port: int = 80) -> Iterator[Connection]:
    """Connect from left to right."""
    with ExitStack() as opened:
        listener = opened.enter_context(right.listener(port))
        client = opened.enter_context(left.stream_socket())
        client.connect((right.address, port))
        server = opened.enter_context(listener.accept()[0])
        server.settimeout(PATIENCE_S)
        yield Connection(client, server)


def read_all(end: socket.socket, length: int) -> bytes:
    found = bytearray()
    while len(found) < length and (part := end.recv(1 << 16)):
        found += part
    return bytes(found)
