"""A WireGuard tunnel in user space (wireguard-go): what encrypts kernel TCP without the kernel's help.

It is configured over its own socket, as wg(8) does (wireguard.com/xplatform). Each end is a process in its namespace
that makes a tun device there.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from netns.programs import output_of
from scripts.harness.errors import BenchError
from scripts.harness.process import ProcessGroup
from scripts.harness.two_hosts import RECEIVER, SENDER, TwoHosts
from scripts.harness.waiting import wait_until

SOCKETS: Final = Path("/var/run/wireguard")
OVERHEAD_BYTES: Final = 60
"""What a tunnel adds to a packet over IPv4: IP, UDP, type, index, counter and tag."""
_PORT: Final = 51820
_ADDRESSES: Final = {SENDER: "192.168.77.1", RECEIVER: "192.168.77.2"}
_BOUND_S: Final = 5.0


@contextmanager
def tunnel(pair: TwoHosts, *, mtu: int) -> Iterator[TwoHosts]:
    """Build a tunnel; yields the pair with the tunnel's addresses. Raises BenchError if it does not come up."""
    keys = {node: X25519PrivateKey.generate() for node in _ADDRESSES}
    outer = {SENDER: pair.sender, RECEIVER: pair.receiver}
    with ProcessGroup() as group:
        for node, other in ((SENDER, RECEIVER), (RECEIVER, SENDER)):
            name = f"srdwg{os.getpid()}{node[0]}"  # the sockets' directory is the same for all namespaces
            group.start("wireguard-go", pair.command(node, ["wireguard-go", "-f", name]))
            _configure(
                group,
                SOCKETS / f"{name}.sock",
                f"private_key={keys[node].private_bytes_raw().hex()}\n"
                f"listen_port={_PORT}\n"
                f"public_key={keys[other].public_key().public_bytes_raw().hex()}\n"
                f"endpoint={outer[other]}:{_PORT}\n"
                f"allowed_ip={_ADDRESSES[other]}/32\n",
            )
            mtu_bytes = str(mtu - OVERHEAD_BYTES)
            for command in (
                ["ip", "address", "add", f"{_ADDRESSES[node]}/24", "dev", name],
                ["ip", "link", "set", name, "mtu", mtu_bytes, "up"],
            ):
                output_of(pair.command(node, command), called=" ".join(command))
        yield replace(pair, sender=_ADDRESSES[SENDER], receiver=_ADDRESSES[RECEIVER])


def _configure(group: ProcessGroup, path: Path, settings: str) -> None:
    """Send the settings to the process that is to listen there. Raises BenchError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:

        def is_connected() -> bool:
            group.require_running()
            return sock.connect_ex(str(path)) == 0

        wait_until(is_connected, within_s=_BOUND_S, missing=f"wireguard-go: no socket {path}")
        sock.sendall(f"set=1\n{settings}\n".encode())
        answer = sock.recv(1000).decode()
    if answer.strip() != "errno=0":
        raise BenchError(f"wireguard-go: refused its settings ({answer.strip()})")
