"""Small programs that exchange data across a lab, run as processes inside its hosts."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from netns.backends.kernel.netlink import in_namespace
from netns.lab.lab import Lab
from tests.patience import PATIENCE_S

PORT: Final = 7007

TCP_SINK: Final = """
import hashlib, socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    digest = hashlib.sha256()
    while data := connection.recv(1 << 16):
        digest.update(data)
    print(digest.hexdigest(), flush=True)
"""

TCP_SOURCE: Final = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    connection.sendall(sys.stdin.buffer.read())
"""


def udp_socket(lab: Lab, host: str, *, address: str | None = None, port: int = PORT) -> socket.socket:
    """An unconnected UDP socket in a host, that waits `PATIENCE_S` at most; it can be used from here."""

    def make() -> socket.socket:
        own = address or lab.address(host)
        made = socket.socket(socket.AF_INET6 if ":" in own else socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((own, port))
        made.settimeout(PATIENCE_S)
        return made

    return in_namespace(lab.netns(host), make)


def crossed(lab: Lab, *, source: str, destination: str, packets: int = 5) -> dict[str, int]:
    """Send packets from h1's address `source` to h2's `destination`; return the packets of each uplink of leaf1."""
    before = uplinks(lab)
    with udp_socket(lab, "h1", address=source) as sender, udp_socket(lab, "h2", address=destination) as receiver:
        for _ in range(packets):
            sender.sendto(b"x" * 100, (destination, PORT))
            assert receiver.recv(200) == b"x" * 100
    after = uplinks(lab)
    return {spine: count for spine in after if (count := after[spine] - before[spine])}


def uplinks(lab: Lab) -> dict[str, int]:
    """Packets from leaf1 to each spine."""
    counters = lab.counters()
    return {spine: counters[f"leaf1-{spine}"]["ab"]["packets"] for spine in lab.topology.spines}


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process whose first line of output means that it is ready; killed at the end."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def tcp_sink(lab: Lab, host: str) -> list[str]:
    """Command of a TCP server that prints the SHA-256 of what it got."""
    return lab.command(host, [sys.executable, "-c", TCP_SINK, lab.address(host), str(PORT)])
