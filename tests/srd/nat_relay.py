"""A NAT on loopback for tests on real sockets: `tests.nat.Nat` with a UDP socket for each external address."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from tests.nat import Nat
from tests.srd.lossy import Address, Relay

OUTSIDE = "127.0.0.2"


class NatRelay(Relay):
    """Between one server and the clients that connect to `port` instead; the server sees them at `outside`."""

    def __init__(self, server_port: int, *, lifetime_s: float) -> None:
        self.outside = OUTSIDE
        self.carried: dict[Address, list[int]] = {}
        """Datagrams by external address: to the server, and from it."""
        self.nat = Nat(self._open_external, lifetime_s=lifetime_s)
        super().__init__(server_port, rng=random.Random(0), loss=0, delayed=0)

    def _open_external(self) -> Address:
        sock = self._open(lambda data, remote: self._from_server(external, data, remote), host=self.outside)
        external: Address = sock.getsockname()
        self._backs[external] = sock
        self.carried[external] = [0, 0]
        return external

    def _from_client(self, data: bytes, client: Address) -> None:
        external = cast(Address, self.nat.outbound(client, self._server, now=self._loop.time()))
        self.carried[external][0] += 1
        self._pass(self._backs[external], data, self._server)

    def _from_server(self, external: Address, data: bytes, remote: Address) -> None:
        client = self.nat.inbound(external, remote, now=self._loop.time())
        if client is not None:
            self.carried[external][1] += 1
            self._pass(self._front, data, cast(Address, client))

    def rebind(self, *, outside: str = OUTSIDE) -> None:
        """Restart the NAT: it forgets all mappings, and closes their ports; `outside` is its address from then on."""
        self.outside = outside
        self.nat.rebind()
        self.carried.clear()
        self._close_backs()


@asynccontextmanager
async def nat_relay(server_port: int, *, lifetime_s: float = 30.0) -> AsyncIterator[NatRelay]:
    """Give a NAT in front of a server of this machine; connect to its `port` instead."""
    opened = NatRelay(server_port, lifetime_s=lifetime_s)
    try:
        yield opened
    finally:
        opened.close()
