"""A running end of a tunnel: interface, endpoint, and what connects them."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.listening import listen_at
from srd.names import resolve
from srd.proto.trace import Trace
from srd.tunnel.config import TunnelConfig
from srd.tunnel.device import TunnelDevice
from srd.tunnel.errors import InterfaceGoneError, TunnelError
from srd.tunnel.gateway import Gateway, GatewayOwner
from srd.tunnel.greeting import Address, Network, OwnAddress
from srd.tunnel.routing import NetworkRouting

PORT: Final = 19880
"""Of a listener, UDP; above SRD's own, which Wireshark takes for it."""


@dataclass(frozen=True, slots=True)
class TunnelSettings:
    """How an end is to be."""

    addresses: Sequence[OwnAddress]
    """Of its interface."""
    name: str | None
    """Of its interface; None: the kernel numbers it."""
    routes: Sequence[Network]
    """Routed to the interface beside the addresses' networks; of a connector, what may come from the listener, too."""
    tunnel: TunnelConfig
    endpoint: EndpointConfig
    express_for: Sequence[Network] = ()
    """Where packets go over SRD; all others go around it. Empty: all go over SRD."""


class RunningTunnel:
    """One end of a tunnel, from its opening to `close`."""

    def __init__(self, endpoint: Endpoint, settings: TunnelSettings, *, outside: Sequence[Address]) -> None:
        """Make the interface; `outside`: where the other end is reached. Raises TunnelError."""
        self.endpoint = endpoint
        self.device = TunnelDevice(
            name=settings.name,
            addresses=settings.addresses,
            routes=settings.routes,
            outside=outside,
            config=settings.tunnel,
        )
        self.routing = NetworkRouting(express_for=settings.express_for)
        self.gateway = Gateway(
            self.device.tun, config=settings.tunnel, routing=self.routing, on_failure=self._on_failure
        )
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _on_failure(self, error: Exception) -> None:
        """Make the interface again if it was deleted; else fail."""
        if isinstance(error, InterfaceGoneError):
            try:
                self.gateway.read_from(self.device.reopen())
            except TunnelError as again:
                error = again
            else:
                return
        if not self._failed.done():
            self._failed.set_exception(error)

    async def run(self, owner: GatewayOwner) -> None:
        """Carry packets until cancelled. Raises SrdError when that cannot go on."""
        self.gateway.owner = owner
        task = asyncio.ensure_future(owner.run())
        try:
            await asyncio.wait({task, self._failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
            await asyncio.wait({task})
        for ended in (self._failed, task):
            if ended.done() and not ended.cancelled():
                ended.result()

    async def close(self) -> None:
        """Close the peers, and delete the interface."""
        try:
            self.gateway.close()
            if self.routing.encapsulation is not None:
                self.routing.encapsulation.close()
            await self.endpoint.close()
        finally:
            self.device.close()


@asynccontextmanager
async def listening(
    host: str | None, port: int, *, settings: TunnelSettings, trace: Trace | None = None
) -> AsyncIterator[RunningTunnel]:
    """Open the end that others connect to, for `Listener`. Raises SrdError."""
    endpoint = await listen_at(host, partial(Endpoint.listen, port=port, config=settings.endpoint, trace=trace))
    async with _running(endpoint, settings, outside=()) as running:
        yield running


@asynccontextmanager
async def connecting(
    host: str, *, settings: TunnelSettings, trace: Trace | None = None
) -> AsyncIterator[RunningTunnel]:
    """Open the end that connects, for `Connector`. Raises SrdError."""
    outside = [ipaddress.ip_address(address[0]) for _, address in await resolve(host, port=0, passive=False)]
    endpoint = await Endpoint.open(towards=host, config=settings.endpoint, trace=trace)
    async with _running(endpoint, settings, outside=outside) as running:
        yield running


@asynccontextmanager
async def _running(
    endpoint: Endpoint, settings: TunnelSettings, *, outside: Sequence[Address]
) -> AsyncIterator[RunningTunnel]:
    try:
        running = RunningTunnel(endpoint, settings, outside=outside)
    except BaseException:
        await endpoint.close()
        raise
    try:
        yield running
    finally:
        await running.close()
