"""Which packets pass, and where to: what a gateway asks for each packet.

`NetworkRouting` is that of `srd tunnel`.

1. A packet goes to the member that its destination is behind. One from a member passes if its source is behind it.
2. Packets that no member is for go around SRD, if this end may do that (`encapsulation`). So do those that are not
   eligible: whose destination is in none of the networks that were named.
3. What cannot go there either is dropped, but for TCP's newest packets, which are kept for a while (`kept`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from srd.tunnel.allowed import AllowedAddresses
from srd.tunnel.counters import Counters
from srd.tunnel.encapsulation import Encapsulation
from srd.tunnel.frames import VNET_AT
from srd.tunnel.greeting import Network
from srd.tunnel.kept import KeptPackets
from srd.tunnel.member import Member
from srd.tunnel.packets import InnerPacket, InnerPacketError


class Routing(Protocol):
    """Which packets pass, and where to. A reason is the name of the counter of dropped packets."""

    def member_for(self, inner: InnerPacket, frame: memoryview, *, now: float) -> Member | str | None:
        """Return who a packet of the interface goes to, or why it is dropped; None: the routing has taken it.

        `frame`: see `srd.tunnel.frames`; its memory is used again after the call.
        """

    def refusal_untrusted(self, member: Member, inner: InnerPacket, packet: memoryview | bytes) -> str | None:
        """Return why a packet of a member is dropped; None: it is not. `packet` has all headers, and may end there."""

    def remove(self, member: Member) -> None:
        """Forget a member that has ended."""


class NetworkRouting:
    """By the networks behind each member; see the module."""

    def __init__(self, *, express_for: Sequence[Network] = ()) -> None:
        """`express_for`: the networks to which packets are eligible for SRD; none: all are."""
        self.counters = Counters()
        """Of packets that no member was for."""
        self.allowed = AllowedAddresses[Member]()
        """The networks behind each member."""
        self.encapsulation: Encapsulation | None = None
        """The way around SRD."""
        self._eligible = AllowedAddresses[bool]()
        self._eligible.add(True, express_for)  # noqa: FBT003 - the value that is found
        self.all_eligible = not express_for
        """Whether no packet is to go around SRD while it answers."""
        self._kept = KeptPackets()

    def member_for(self, inner: InnerPacket, frame: memoryview, *, now: float) -> Member | None:
        """Return who a packet goes to; None: it went around SRD, is kept, or was dropped."""
        member = self._member_at(inner.destination)
        if member is None:
            self._send_around(frame, inner, now=now)
        return member

    def refusal_untrusted(self, member: Member, inner: InnerPacket, _packet: memoryview | bytes) -> str | None:
        """Return why a packet of a member is dropped; None: it is not."""
        return None if self.allowed.find(inner.source) is member else "forged_source"

    def remove(self, member: Member) -> None:
        """Have nothing behind a member that has ended."""
        self.allowed.remove(member)

    def take_kept(self, *, now: float) -> list[bytes]:
        """Return the frames that were kept for those that can be reached now."""
        ready = {
            each
            for each in self._kept.destinations()
            if self._member_at(each) is not None or self._encapsulation_for(each) is not None
        }
        frames, too_old = self._kept.take(ready, now=now)
        self._drop(too_old)
        return frames

    def _member_at(self, destination: bytes) -> Member | None:
        return self.allowed.find(destination) if self._is_eligible(destination) else None

    def _is_eligible(self, destination: bytes) -> bool:
        return self.all_eligible or self._eligible.find(destination) is not None

    def _encapsulation_for(self, destination: bytes) -> Encapsulation | None:
        """Return what sends to an address without SRD, if that may be and is possible now."""
        found = self.encapsulation
        if found is None or not found.reaches(destination):
            return None
        return found if found.is_active or not self._is_eligible(destination) else None

    def _send_around(self, frame: memoryview, inner: InnerPacket, *, now: float) -> None:
        """Send a packet without SRD, or keep it until there is somebody to send it to."""
        encapsulation = self._encapsulation_for(inner.destination)
        if encapsulation is None:
            self._drop(self._kept.keep(frame, inner, now=now))
            return
        try:
            sent = encapsulation.send(frame[VNET_AT:], inner)
        except InnerPacketError as error:
            self.counters.dropped[error.reason] += 1
            return
        self.counters.encapsulated_tx_pkts += sent
        if self._is_eligible(inner.destination):
            self.counters.ena_srd_eligible_tx_pkts += sent

    def _drop(self, packets: int) -> None:
        if packets:
            self.counters.dropped["no_peer"] += packets
