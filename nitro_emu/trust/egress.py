"""The egress guard: a card opens no peer that its control plane did not ask for.

    guard = EgressGuard(alarms)                          # allows nothing yet
    guard.set_allowed(frozenset({"10.0.1.2"}))           # with each mapping: the addresses of the other cards
    guard.check("10.0.1.2")                              # for a new peer; may raise TrustError
    guard.allows("10.0.1.2")                             # by the engine: nobody else gets an answer

Other ways out are denied in the kernel, for any code: `nitro_emu.trust.confinement`.
"""

from __future__ import annotations

import errno
import ipaddress
from typing import Final

from nitro_emu.errors import TrustError
from nitro_emu.trust.alarms import Alarms

ALARM: Final = "egress"

MAX_HOSTS: Final = 1 << 16
"""Addresses that may be allowed: a mapping has at most as many cards."""


class EgressRefusedError(TrustError, PermissionError):
    """The guard has refused a call. For callers that expect a firewall's refusal it is a PermissionError (EPERM)."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EPERM, text)
        self.text = text

    def __str__(self) -> str:
        """Return the reason."""
        return self.text


class EgressGuard:
    """Refuses destinations that the control plane did not ask for. Any thread may use it."""

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms
        self._allowed: frozenset[str] | None = frozenset()

    def set_allowed(self, hosts: frozenset[str] | None) -> None:
        """Allow these IP addresses, as text, and no others. None: any, for a card without a control plane.

        Raises TrustError for what is no address, or for too many; what was allowed stays so.
        """
        if hosts is not None and len(hosts) > MAX_HOSTS:
            raise TrustError(f"{len(hosts)} addresses are more than {MAX_HOSTS}; divide the mapping")
        self._allowed = None if hosts is None else frozenset(_canonical(host) for host in hosts)

    def check(self, host: str) -> None:
        """Raise EgressRefusedError, and an alarm, unless the host is allowed."""
        if not self.allows(host):
            self._alarms.raise_alarm(ALARM, text := f"{host:.100}: the control plane did not ask for it")
            raise EgressRefusedError(f"egress guard: {text}")

    def allows(self, host: str) -> bool:
        """Whether the host is allowed; without an alarm, for what strangers ask."""
        allowed = self._allowed
        if allowed is None or host in allowed:
            return True
        try:  # another spelling of an allowed one
            return _canonical(host) in allowed
        except TrustError:
            return False


def _canonical(host: str) -> str:
    """Return the one spelling of an address. Raises TrustError for what is none."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise TrustError(f"{host!r:.100} is no IP address; give one, such as 10.0.1.2") from None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
