"""The interface of a tunnel: its descriptors, and how it is configured. It is made again if somebody deletes it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from srd.tunnel.config import MIN_MTU, TunnelConfig
from srd.tunnel.frames import FRAME_BYTES
from srd.tunnel.greeting import Interface as Address
from srd.tunnel.greeting import Network
from srd.tunnel.interface import Interface
from srd.tunnel.tun import Tun

FIRST_MTU: Final = 1400
"""Until a peer's packets are known: what fits into one SRD packet over Ethernet, encrypted and over IPv6."""

_log: Final = logging.getLogger(__name__)


class Device:
    """A TUN interface with addresses and routes."""

    def __init__(
        self, *, name: str | None, addresses: Sequence[Address], routes: Sequence[Network], config: TunnelConfig
    ) -> None:
        """Make it. Raises TunnelError."""
        self.addresses = addresses
        self._routes = list(routes)
        self._config = config
        self._mtu = config.mtu or FIRST_MTU
        self.tun, self._interface = self._opened(name)
        self._name = self.tun.name

    def _opened(self, name: str | None) -> tuple[Tun, Interface]:
        with ExitStack() as opened:
            tun = opened.enter_context(Tun.open(name, queues=self._config.queues))
            interface = opened.enter_context(Interface(tun.index))
            interface.configure(addresses=self.addresses, mtu=self._mtu)
            for network in self._routes:
                interface.add_route(network)
            opened.pop_all()
        return tun, interface

    @property
    def name(self) -> str:
        """What it is called now, or was called last."""
        return self._name

    def add_routes(self, networks: Sequence[Network]) -> None:
        """Route networks to it that its addresses do not cover. Raises TunnelError."""
        own = [each.network for each in self.addresses]
        for network in networks:
            covered = any(network.version == each.version and network.subnet_of(each) for each in own)  # type: ignore[arg-type]  # versions are equal
            if not covered and network not in self._routes:
                self._interface.add_route(network)
                self._routes.append(network)

    def fit_mtu(self, packet_bytes: int) -> None:
        """Raise the MTU to what one SRD packet to a new peer carries, unless it was configured."""
        mtu = max(packet_bytes - FRAME_BYTES, MIN_MTU)
        if self._config.mtu is None and mtu > self._mtu:
            self._interface.set_mtu(mtu)
            self._mtu = mtu

    def reopen(self) -> Tun:
        """Make it again under the same name, with all that it had. Raises TunnelError."""
        self.close()
        self.tun, self._interface = self._opened(self._name)
        _log.warning("%s: was deleted; made again", self._name)
        return self.tun

    def close(self) -> None:
        """Delete it; its addresses and routes go with it."""
        self._interface.close()
        self.tun.close()
