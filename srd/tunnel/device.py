"""The interface of a tunnel: its descriptors, and how it is configured. It is made again if somebody deletes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from typing import Final

from srd.tunnel.config import MIN_MTU, TunnelConfig
from srd.tunnel.errors import InterfaceGoneError
from srd.tunnel.frames import FRAME_BYTES
from srd.tunnel.greeting import Address, Network, OwnAddress
from srd.tunnel.interface import InterfaceState, TunnelInterface
from srd.tunnel.tun import Tun

FIRST_MTU: Final = 1400
"""Until a peer's packets are known: what fits into one SRD packet over Ethernet, encrypted and over IPv6."""

_log: Final = logging.getLogger(__name__)


class TunnelDevice:
    """A TUN interface with addresses and routes."""

    def __init__(
        self,
        *,
        name: str | None,
        addresses: Sequence[OwnAddress],
        routes: Sequence[Network],
        outside: Sequence[Address],
        config: TunnelConfig,
    ) -> None:
        """Make it. `outside`: where the other end is reached, which never leads into the tunnel. Raises TunnelError."""
        self.addresses = addresses
        self._routes = routes
        self._outside = outside
        self._config = config
        self._mtu = config.mtu or FIRST_MTU
        self.tun, self._interface = self._opened(name)
        self._name = self.tun.name
        self.is_up = True
        self._watch = asyncio.ensure_future(self._watched())

    def _opened(self, name: str | None) -> tuple[Tun, TunnelInterface]:
        with ExitStack() as opened:
            tun = opened.enter_context(Tun.open(name, queues=self._config.queues))
            interface = opened.enter_context(closing(TunnelInterface(tun.index)))
            interface.configure(
                mtu_bytes=self._mtu, addresses=self.addresses, routes=self._routes, outside=self._outside
            )
            opened.pop_all()
        return tun, interface

    async def _watched(self) -> None:
        """Note changes by others, until the interface is deleted: whoever reads from it is told, too."""
        with suppress(InterfaceGoneError):
            await self._interface.watch(self._on_change)

    def _on_change(self, state: InterfaceState) -> None:
        if state.name != self._name:
            _log.warning("%s: is now called %s", self._name, state.name)
            self._name = state.name
        if state.is_up is not self.is_up:
            _log.warning("%s: is %s", state.name, "up again" if state.is_up else "down: nothing passes")
            self.is_up = state.is_up
        for line in state.missing:
            _log.warning("%s: %s", state.name, line)

    @property
    def name(self) -> str:
        """What it is called now, or was called last."""
        return self._name

    def fit_mtu(self, packet_bytes: int) -> None:
        """Raise the MTU to what one SRD packet to a new peer carries, unless it was configured. Raises TunnelError."""
        mtu = max(packet_bytes - FRAME_BYTES, MIN_MTU)
        if self._config.mtu is None and mtu > self._mtu:
            self._interface.set_mtu(mtu)
            self._mtu = mtu

    def reopen(self) -> Tun:
        """Make it again under the same name, with all that it had. Raises TunnelError."""
        self.close()
        self.tun, self._interface = self._opened(self._name)
        self._watch = asyncio.ensure_future(self._watched())
        _log.warning("%s: was deleted; made again", self._name)
        return self.tun

    def close(self) -> None:
        """Delete it; its addresses and routes go with it."""
        self._watch.cancel()
        self._interface.close()
        self.tun.close()
