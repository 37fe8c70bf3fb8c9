"""Ends of a tunnel as processes, in namespaces that veth pairs join: a listener, and its clients."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from netns.backends.relay.tap import inside
from tests.patience import PATIENCE_S
from tests.programs import run_to_end
from tests.srd.cli.processes import Process, command
from tests.srd.tunnel.cable import Connection, ip, namespaces

TCP_PORT: Final = 5000
UDP_PORT: Final = 6000
TARGET_PORT: Final = 19880


def outer(client: int, *, listener: bool = False) -> str:
    """An address of the link between the listener and a client, which are numbered from 1."""
    return f"10.1.{client}.{1 if listener else 2}"


def inner(host: int, *, version: int = 4) -> str:
    """The tunnel's address of the listener (0) or a client."""
    return f"10.88.0.{host + 1}" if version == 4 else f"fd88::{host + 1}"


@dataclass
class Ends:
    """The listener is host 0, clients follow."""

    netns: list[str]
    homes: list[Path]
    options: tuple[str, ...]
    stack: ExitStack
    processes: list[Process | None] = field(default_factory=list)
    listener_host: str = ""
    """Where clients find the listener; empty: at its end of their link."""

    def listen(self, *options: str) -> Process:
        """Start the listener, or start it again; it accepts anyone, unless the options say whom."""
        addresses = ("--address", f"{inner(0)}/24", "--address", f"{inner(0, version=6)}/64")
        said = {"--peers", "--psk-file", "--cert"} & {*options, *self.options}
        return self._start(0, "listening on", "listen", *addresses, *options, *(() if said else ("--allow-anyone",)))

    def connect(self, client: int = 1, *options: str, awaits: str = "connected to") -> Process:
        """Start a client, and wait until it says that packets pass."""
        target = f"{self.listener_host or outer(client, listener=True)}:{TARGET_PORT}"
        addresses = ("--address", f"{inner(client)}/24", "--address", f"{inner(client, version=6)}/64")
        return self._start(client, awaits, "connect", target, *addresses, *options)

    def _start(self, host: int, awaits: str, *arguments: str) -> Process:
        process = self.stack.enter_context(Process(self.argv(host, *arguments, *self.options)))
        self.processes[host] = process
        self.await_line(host, awaits)
        return process

    def await_line(self, host: int, text: str) -> str:
        """Return the next line of a host's log that contains `text`; skip those before it."""
        process = self.processes[host]
        assert process is not None
        return process.line(text)

    def argv(self, host: int, *arguments: str) -> list[str]:
        """The command line of `srd tunnel` on a host."""
        where = ["ip", "netns", "exec", self.netns[host], "env", f"SRD_HOME={self.homes[host]}"]
        return [*where, *command("tunnel", *arguments)]

    def run(self, host: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `srd tunnel` to its end."""
        return run_to_end(self.argv(host, *arguments))

    def stats(self, host: int) -> dict[str, Any]:
        """What the host's tunnel has counted."""
        (found,) = json.loads(self.run(host, "metrics", "--json").stdout)
        return dict(found)

    def interfaces(self, host: int) -> list[str]:
        """Names of the TUN interfaces."""
        return [
            each["ifname"] for each in json.loads(ip("-json", "link", "show", "type", "tun", netns=self.netns[host]))
        ]

    def connection(self, *, version: int = 4, client: int = 1, server: int = 0) -> Connection:
        """Connect through the tunnel."""
        return Connection(self.netns[client], self.netns[server], to=(inner(server, version=version), TCP_PORT))

    def udp(self, host: int, *, version: int = 4, address: str = "") -> socket.socket:
        """Return a socket that is bound to the host's address in the tunnel, or to another one."""
        with inside(self.netns[host]):
            sock = socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((address or inner(host, version=version), UDP_PORT))
        sock.settimeout(PATIENCE_S)
        return sock


@contextmanager
def ends(tmp_path: Path, *options: str, clients: int = 1, mtu: int = 1500) -> Iterator[Ends]:
    """Make the namespaces and their links; nothing runs yet. `options` are those of all ends."""
    with ExitStack() as stack:
        names = stack.enter_context(namespaces(1 + clients))
        homes = [tmp_path / f"home{host}" for host in range(1 + clients)]
        for client in range(1, 1 + clients):
            here, there = f"to{client}", "to0"
            link = ("type", "veth", "peer", "name", there, "mtu", str(mtu), "netns", names[client])
            ip("link", "add", here, "mtu", str(mtu), "netns", names[0], *link)
            for netns, name, address in (
                (names[0], here, outer(client, listener=True)),
                (names[client], there, outer(client)),
            ):
                ip("address", "add", f"{address}/24", "dev", name, netns=netns)
                ip("link", "set", name, "up", netns=netns)
        yield Ends(names, homes, options, stack, [None] * (1 + clients))


@contextmanager
def joined(tmp_path: Path, *options: str, clients: int = 1, mtu: int = 1500) -> Iterator[Ends]:
    """Ends whose tunnels are up."""
    with ends(tmp_path, *options, clients=clients, mtu=mtu) as made:
        made.listen()
        for client in range(1, 1 + clients):
            made.connect(client)
        yield made


def exchange(made: Ends, *, version: int = 4, megabytes: int = 4, client: int = 1, server: int = 0) -> None:
    """Send random bytes both ways at once over a TCP connection through the tunnel; compare every byte."""
    with made.connection(version=version, client=client, server=server) as connection:
        connection.exchange(megabytes)
