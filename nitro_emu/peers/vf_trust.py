"""What a card gives a virtual function: whom it may talk to, with which keys, and where it reports what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nitro_emu.peers.attestation import PeerAttestation
from nitro_emu.peers.tenancy import Tenancy
from nitro_emu.trust.alarms import Alarms
from srd.secure.config import Keys, SecurityConfig
from srd.secure.noise import public_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class VfTrust:
    """Of one virtual function; `CardTrust.of` makes it."""

    security: SecurityConfig
    tenancy: Tenancy
    attestation: PeerAttestation
    alarms: Alarms
    check_egress: Callable[[str], None]
    """Raises TrustError for a host that the card may not send to."""
    answers: Callable[[str], bool]
    """Whether a host that has no peer gets replies."""

    @property
    def public_key(self) -> bytes:
        """This end's static public key; empty without keys."""
        key = self.security.private_key if isinstance(self.security, Keys) else None
        return b"" if key is None else public_bytes(key)
