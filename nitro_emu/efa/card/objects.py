"""Programs as what they have made uses them; protection domains and address handles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from nitro_emu.peers.outgoing import OutgoingPeer


class ObjectOwner(Protocol):
    """The program that has made an object."""

    def warn(self, *, syndrome: int, number: int) -> None:
        """Report its mistake to it."""


@dataclass(slots=True, eq=False)
class CardProtectionDomain:
    """What its queue pairs, memory regions and address handles may use of each other."""

    number: int
    users: int = 0
    """Objects that belong to it."""
    by_gid: dict[bytes, dict[int, None]] = field(default_factory=dict)
    """The numbers of the address handles of each GID: the first is what a completion names as its source."""


@dataclass(slots=True, eq=False)
class CardAddressHandle:
    """A destination."""

    number: int
    pd: CardProtectionDomain
    gid: bytes
    remote: OutgoingPeer
    open_requests: dict[int, None] = field(default_factory=dict)
    """The numbers of the requests to it that have not ended (`requester`)."""
