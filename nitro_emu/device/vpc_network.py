"""The mapping that a card has from its control plane: the newest one, while it lives.

The card opens no connection: the control plane pushes. A document counts if its signature is the control plane's, if it
was issued now by the card's clock, and if its version is newer than the last one. Its lifetime runs by the monotonic
clock from then on, so that a clock that is set does not shorten or lengthen it. After it, what is open goes on, and
nothing new is allowed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from nitro_emu.errors import VpcError
from nitro_emu.trust.alarms import Alarms
from nitro_emu.vpc.document import open_map_untrusted
from nitro_emu.vpc.rules import Mapping

_log: Final = logging.getLogger(__name__)


class VpcNetwork:
    """What one card knows of all VPCs. Its methods are called in the event loop's thread."""

    def __init__(
        self,
        card: str,
        *,
        control_plane: EllipticCurvePublicKey,
        alarms: Alarms,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`card`: this card's name in the mapping; `control_plane`: whose signature counts; the clocks in seconds."""
        self.card = card
        self._control_plane = control_plane
        self._alarms = alarms
        self._wall_clock = wall_clock
        self._clock = clock
        self._mapping: Mapping | None = None
        self._expires_at = 0.0
        self._callbacks: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback` called after each new mapping."""
        self._callbacks.append(callback)

    def set_map_untrusted(self, document: bytes) -> dict[str, Any]:
        """Take a signed mapping, and return what counts from now on. Raises VpcError with the reason."""
        found = open_map_untrusted(document, key=self._control_plane, now_s=self._wall_clock())
        if self._mapping is not None and found.version <= self._mapping.version:
            self._alarms.raise_alarm("stale-map", f"mapping {found.version} is offered after {self._mapping.version}")
            raise VpcError(f"version: {found.version} is not newer than {self._mapping.version}, which this card has")
        self._mapping = Mapping(found.map, version=found.version)
        self._expires_at = self._clock() + max(found.issued_at_s + found.lifetime_s - self._wall_clock(), 0.0)
        _log.debug("mapping %d, for %s s", found.version, found.lifetime_s)
        for callback in self._callbacks:
            callback()
        return self.status()

    def mapping(self) -> Mapping:
        """Return the mapping. Raises VpcError while there is none that is valid."""
        if self._mapping is None:
            raise VpcError("no mapping yet: the control plane has not pushed one")
        if self._clock() >= self._expires_at:
            raise VpcError(f"mapping {self._mapping.version} has expired: the control plane pushes no newer one")
        return self._mapping

    @property
    def card_addresses(self) -> frozenset[str]:
        """The addresses of all cards, valid or not: what this card may send to."""
        return frozenset() if self._mapping is None else frozenset(c.address for c in self._mapping.cards.values())

    def __contains__(self, public_key: object) -> bool:
        """Whether a card in the mapping has this key. Others may not open a peer; they raise an alarm."""
        if self._mapping is None:
            return False
        if public_key in self._mapping.card_keys:
            return True
        self._alarms.raise_alarm("unknown-card", "a handshake with the key of no card in the mapping")
        return False

    def status(self) -> dict[str, Any]:
        """Return version and remaining lifetime."""
        if self._mapping is None:
            return {"version": None, "expires_in_s": 0.0}
        return {"version": self._mapping.version, "expires_in_s": max(round(self._expires_at - self._clock(), 3), 0.0)}
