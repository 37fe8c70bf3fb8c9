"""Fragments of an IPv4 packet (RFC 791, section 3.2), for a path that is too narrow for it."""

from __future__ import annotations

from typing import Final

from srd.tunnel.packets import IPV4_BYTES, InnerPacket

_DONT_FRAGMENT: Final = 0x4000
_MORE: Final = 0x2000
_OFFSET: Final = 0x1FFF
_UNIT_BYTES: Final = 8
"""Of a fragment's offset."""


def fragments(packet: memoryview | bytes, inner: InnerPacket, *, mtu: int) -> list[bytes]:
    """Return the fragments of a packet, or of a fragment, each `mtu` bytes at most.

    None are returned where it must not be fragmented, and where it has options, each of which would have a rule of its
    own.
    """
    if inner.version != 4 or packet[0] & 0xF != IPV4_BYTES // 4 or mtu < IPV4_BYTES + _UNIT_BYTES:
        return []
    field = packet[6] << 8 | packet[7]
    if field & _DONT_FRAGMENT:
        return []
    most = (mtu - IPV4_BYTES) // _UNIT_BYTES * _UNIT_BYTES
    payload = packet[IPV4_BYTES : inner.length]
    return [
        _fragment(packet, payload[at : at + most], field=field, at=at, is_last=at + most >= len(payload))
        for at in range(0, len(payload), most)
    ]


def _fragment(packet: memoryview | bytes, part: memoryview | bytes, *, field: int, at: int, is_last: bool) -> bytes:
    header = bytearray(packet[:IPV4_BYTES])
    header[2:4] = (IPV4_BYTES + len(part)).to_bytes(2, "big")
    offset = (field & _OFFSET) + at // _UNIT_BYTES
    header[6:8] = (offset | (field & _MORE if is_last else _MORE)).to_bytes(2, "big")
    header[10:12] = bytes(2)
    header[10:12] = (0xFFFF - int.from_bytes(header, "big") % 0xFFFF).to_bytes(2, "big")
    return bytes(header) + bytes(part)
