"""Operations on packets that netem's model needs for any type of packet: the queue itself does not parse them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

P = TypeVar("P")

Draw = Callable[[], int]
"""Returns a number in 0..2**32 - 1."""


class PacketOps(Protocol[P]):
    """Copies, corrupts and marks packets of one type. Results are new packets; arguments do not change."""

    def length_bytes(self, packet: P) -> int:
        """Return its size on the wire, Ethernet header included."""

    def copied(self, packet: P) -> P:
        """Return an independent duplicate."""

    def corrupted(self, packet: P, *, draw: Draw) -> P:
        """Return the packet with one bit flipped, chosen by `draw`."""

    def marked(self, packet: P) -> P | None:
        """Return the packet with a congestion mark (ECN: CE); None if it cannot carry one."""


class Frames:
    """Ethernet frames as bytes: IPv4 and IPv6 can be marked."""

    def length_bytes(self, packet: bytes) -> int:
        """Return its size."""
        return len(packet)

    def copied(self, packet: bytes) -> bytes:
        """Return the same object, because bytes are immutable."""
        return packet

    def corrupted(self, packet: bytes, *, draw: Draw) -> bytes:
        """Flip one bit anywhere in the frame, as netem does: one draw for the byte, one for its bit."""
        damaged = bytearray(packet)
        damaged[draw() * len(packet) >> 32] ^= 1 << (draw() >> 29)
        return bytes(damaged)

    def marked(self, packet: bytes) -> bytes | None:
        """Set CE in the traffic class of IPv6, or in IPv4's type of service with the checksum updated.

        RFC 3168, section 5: packets with ECT or CE can be marked. RFC 1624: incremental update of the checksum.
        """
        kind = packet[12:14]
        if kind == b"\x08\x00" and len(packet) >= 34:
            codepoint, added = packet[15] & 3, 3 - (packet[15] & 3)
            if not codepoint or not added:
                return packet if codepoint else None
            checksum = ~packet[24] & 0xFF, ~packet[25] & 0xFF
            total = (checksum[0] << 8 | checksum[1]) + added
            total = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
            return b"".join(
                (packet[:15], bytes([packet[15] | 3]), packet[16:24], total.to_bytes(2, "big"), packet[26:])
            )
        if kind == b"\x86\xdd" and len(packet) >= 54:
            codepoint = packet[15] >> 4 & 3
            return packet[:15] + bytes([packet[15] | 0x30]) + packet[16:] if codepoint else None
        return None


class Opaque:
    """Packets that cannot be changed: a copy or a corrupted packet is the same object, and none can be marked."""

    def length_bytes(self, packet: object) -> int:  # noqa: ARG002
        """Return 0: the size is unknown."""
        return 0

    def copied(self, packet: P) -> P:
        """Return the same object."""
        return packet

    def corrupted(self, packet: P, *, draw: Draw) -> P:  # noqa: ARG002
        """Return the same object."""
        return packet

    def marked(self, packet: object) -> None:
        """Return None: never marked."""
