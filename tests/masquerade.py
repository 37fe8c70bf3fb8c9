"""Clients behind Linux' masquerading: namespaces of clients, a router and a server, joined by veth pairs."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.nftables.expressions import masq
from pyroute2.nftables.main import NFTables

from netns.backends.relay.tap import inside
from tests.patience import PATIENCE_S, until
from tests.srd.tunnel.cable import ip, namespaces, set_up, veth

SERVER, OUTSIDE, OTHER_OUTSIDE = "10.78.2.1", "10.78.2.2", "10.78.2.3"
LIFETIMES = ("nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream")
CONNECTIONS = "/proc/thread-self/net/nf_conntrack"
DISCARD_PORT = 9


class Inside(Thread):
    """A thread in a namespace; `result` waits for what its work returns, or raises what it raises."""

    def __init__(self, namespace: str, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._namespace, self._work = namespace, work
        self._returned: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            with inside(self._namespace):
                self._returned = self._work()
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self.error = error

    def result(self) -> Any:
        self.join(2 * PATIENCE_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self._returned


@dataclass(frozen=True)
class Masquerade:
    """The namespaces; the router has addresses of the clients' sides, and masquerades on the server's."""

    clients: tuple[str, ...]
    router: str
    server: str

    @property
    def client(self) -> str:
        """The first one."""
        return self.clients[0]

    def build(self) -> None:
        self._join(self.server, SERVER, far="out", gateway=OUTSIDE)
        for number, client in enumerate(self.clients):
            network = f"10.78.{100 + number}"
            self._join(client, f"{network}.2", far=f"in{number}", gateway=f"{network}.1")
            ip("route", "add", "default", "via", f"{network}.1", netns=client)
        Inside(self.router, _masquerade).result()

    def _join(self, host: str, address: str, *, far: str, gateway: str) -> None:
        """Give a host an address, and the router another one, at the ends of a link."""
        veth(host, self.router, names=("eth0", far))
        set_up(host, "eth0", f"{address}/24")
        set_up(self.router, far, f"{gateway}/24")

    def set_lifetime(self, seconds: int) -> None:
        """Have the kernel forget a mapping that is not used for so long."""

        def write() -> None:
            for name in LIFETIMES:
                _write_sysctl(f"net/netfilter/{name}", seconds)

        Inside(self.router, write).result()

    async def outlive_a_mapping(self) -> None:
        """Have the first client send one datagram, and wait until the kernel has forgotten the mapping of its port."""

        def send() -> int:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.sendto(b"", (SERVER, DISCARD_PORT))
                return int(sock.getsockname()[1])

        def is_forgotten() -> bool:
            return f" sport={port} " not in Inside(self.router, Path(CONNECTIONS).read_text).result()

        port = Inside(self.client, send).result()
        assert not is_forgotten()
        await until(is_forgotten)

    def rebind(self) -> None:
        """Give the router another external address: the kernel forgets the mappings of the old one."""
        ip("address", "delete", f"{OUTSIDE}/24", "dev", "out", netns=self.router)
        ip("address", "add", f"{OTHER_OUTSIDE}/24", "dev", "out", netns=self.router)


def _masquerade() -> None:
    _write_sysctl("net/ipv4/ip_forward", 1)
    nft = NFTables(nfgen_family=2)  # NFPROTO_IPV4
    try:
        nft.table("add", name="nat")
        nft.chain("add", table="nat", name="post", hook="postrouting", type="nat", policy=1, priority=100)
        nft.rule("add", table="nat", chain="post", expressions=(masq(),))
    finally:
        nft.close()


def _write_sysctl(path: str, value: int) -> None:
    Path("/proc/sys", path).write_text(str(value), encoding="ascii")  # of this thread's namespace


@contextmanager
def masquerade(*, clients: int = 1) -> Iterator[Masquerade]:
    """Build the namespaces. Skips where the kernel has no masquerading."""
    with namespaces(clients + 2) as (router, server, *others):
        built = Masquerade(tuple(others), router, server)
        try:
            built.build()
        except NetlinkError as error:
            pytest.skip(f"this kernel has no masquerading: {error}")
        yield built
