"""What netem's model may ask of a packet, whatever a packet is: the queue itself never looks inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

P = TypeVar("P")

Draw = Callable[[], int]
"""Gives a number in 0..2**32 - 1."""


class PacketOps(Protocol[P]):
    """Copies, damages and marks packets of one type. Made packets are new; what goes in stays as it was."""

    def length_bytes(self, packet: P) -> int:
        """Its size on the wire, Ethernet header included."""

    def copied(self, packet: P) -> P:
        """A duplicate that goes its own way."""

    def corrupted(self, packet: P, *, draw: Draw) -> P:
        """The packet with one bit flipped, chosen by `draw`."""

    def marked(self, packet: P) -> P | None:
        """The packet with a congestion mark (ECN: CE); None if it cannot carry one."""


class Frames:
    """Ethernet frames as bytes: IPv4 and IPv6 can be marked."""

    def length_bytes(self, packet: bytes) -> int:
        """Its size."""
        return len(packet)

    def copied(self, packet: bytes) -> bytes:
        """Bytes do not change: the same."""
        return packet

    def corrupted(self, packet: bytes, *, draw: Draw) -> bytes:
        """One bit anywhere in the frame flipped, as netem does: a byte by one draw, a bit of it by another."""
        damaged = bytearray(packet)
        damaged[draw() * len(packet) >> 32] ^= 1 << (draw() >> 29)
        return bytes(damaged)

    def marked(self, packet: bytes) -> bytes | None:
        """CE in the traffic class of IPv6, or in IPv4's type of service with the checksum that belongs to it.

        RFC 3168, section 5: what says ECT or CE can be marked. RFC 1624: the checksum, from what changed.
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
    """Packets that nothing can be done to: copies and damaged ones are the same object, none can be marked."""

    def length_bytes(self, packet: object) -> int:  # noqa: ARG002
        """Unknown: 0."""
        return 0

    def copied(self, packet: P) -> P:
        """The same."""
        return packet

    def corrupted(self, packet: P, *, draw: Draw) -> P:  # noqa: ARG002
        """The same."""
        return packet

    def marked(self, packet: object) -> None:
        """Never."""
