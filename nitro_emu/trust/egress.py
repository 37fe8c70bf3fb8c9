"""The egress guard: a card opens no peer that its control plane did not ask for.

    guard = EgressGuard(alarms)                          # allows nothing yet
    guard.set_allowed(frozenset({"10.0.1.2"}))           # with each mapping: the addresses of the other cards
    guard.check("10.0.1.2")                              # for a new peer; may raise TrustError
    guard.allows("10.0.1.2")                             # by the engine: nobody else gets an answer

Other ways out are denied in the kernel, for any code: `nitro_emu.trust.confinement`.
"""

from __future__ import annotations

from typing import Final

from nitro_emu.errors import TrustError
from nitro_emu.trust.alarms import Alarms

ALARM: Final = "egress"


class EgressGuard:
    """Refuses destinations that the control plane did not ask for. Any thread may use it."""

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms
        self._allowed: frozenset[str] | None = frozenset()

    def set_allowed(self, hosts: frozenset[str] | None) -> None:
        """Allow these IP addresses, in their usual form, and no others. None: any, without a control plane."""
        self._allowed = hosts

    def check(self, host: str) -> None:
        """Raise TrustError, and an alarm, unless the host is allowed."""
        if not self.allows(host):
            self._alarms.raise_alarm(ALARM, text := f"{host:.100}: the control plane did not ask for it")
            raise TrustError(f"egress guard: {text}")

    def allows(self, host: str) -> bool:
        """Whether the host is allowed; without an alarm, for what strangers ask."""
        return self._allowed is None or host in self._allowed
