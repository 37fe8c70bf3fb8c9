"""An interface that nothing comes from, for ends of a tunnel in the tests' own process."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from srd.tunnel.config import TunnelConfig
from srd.tunnel.gateway import Gateway
from srd.tunnel.greeting import OwnAddress
from srd.tunnel.routing import Routing
from srd.tunnel.tun import NO_OFFLOAD, Tun


class Device:
    """Its addresses."""

    def __init__(self, addresses: Sequence[OwnAddress]) -> None:
        self.addresses = addresses

    def fit_mtu(self, packet_bytes: int) -> None:
        """Do nothing: it has no MTU."""


def device(addresses: Sequence[OwnAddress]) -> Any:
    """What a `Listener` and a `Connector` need of a device."""
    return Device(addresses)


def _fail(error: Exception) -> None:
    raise error


@contextmanager
def idle_gateway(routing: Routing) -> Iterator[Gateway]:
    """Make a gateway."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with here, there:
        here.settimeout(0)
        tun = Tun((here.fileno(),), index=0, offload=NO_OFFLOAD)
        gateway = Gateway(tun, config=TunnelConfig(), routing=routing, on_failure=_fail)
        try:
            yield gateway
        finally:
            gateway.close()
