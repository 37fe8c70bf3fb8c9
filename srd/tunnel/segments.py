"""What the kernel leaves to the interface, done in software: segmentation (GSO), checksums, fragments.

Where the receiving kernel takes no super-packets, or no packets without a checksum, this makes packets of them as they
are on a wire. It follows Linux (net/ipv4/tcp_offload.c, udp_offload.c, skb_checksum_help):

- TCP: each segment has its sequence number; FIN and PSH are the last one's, CWR the first one's.
- UDP: each segment is a datagram of its own.
- IPv4: identifications count up from the super-packet's.
- A checksum that is left to do (NEEDS_CSUM) is the sum of the pseudo header so far. Its length is replaced by the
  segment's. So what is summed need not be known again, such as the last address of a routing header.

All segments of a super-packet are the rows of one array, so that each step is one operation for all of them. Sums are
of little-endian words: with bytes swapped, the ones' complement sum is the same one, swapped (RFC 1071).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from srd.tunnel.packets import IPV4_BYTES, IPV6_BYTES, TCP, UDP, InnerPacket, parse_untrusted
from srd.tunnel.vnet import GSO_NONE, NEEDS_CSUM, TCP_CHECKSUM_AT, UDP_CHECKSUM_AT, VnetHeader

_FIN_PSH: Final = 0x09
_CWR: Final = 0x80
_MODULUS: Final = 0xFFFF
"""2^16 is 1 modulo 65,535: a remainder is a ones' complement sum of 16-bit words, but for 0, which is 0xFFFF, too."""

Bytes = npt.NDArray[np.uint8]


def segments(header: VnetHeader, packet: memoryview | bytes) -> list[bytes]:
    """Return a packet, or all segments of a super-packet, with nothing left to do in them.

    `header` fits the packet, as `vnet.parse_untrusted` checks it. Raises InnerPacketError as `packets.parse_untrusted`.
    """
    inner = parse_untrusted(packet)
    if header.gso_type == GSO_NONE:
        whole = bytearray(packet[: inner.length])
        complete_checksum(header, memoryview(whole))
        return [bytes(whole)]
    rows, lengths = _split(packet, inner, segment_bytes=header.gso_size)
    if inner.version == 4:
        _finish_ipv4(rows, header_bytes=inner.header_bytes, lengths=lengths)
    else:
        rows[:, 4:6] = _big_endian(lengths - IPV6_BYTES)
    if inner.protocol == TCP:
        _finish_tcp(rows, at=inner.header_bytes, segment_bytes=header.gso_size)
    else:
        rows[:, inner.header_bytes + 4 : inner.header_bytes + 6] = _big_endian(lengths - inner.header_bytes)
    _finish_checksums(rows, inner, lengths=lengths, is_partial=header.flags & NEEDS_CSUM != 0)
    return [row[:length].tobytes() for row, length in zip(rows, lengths.tolist(), strict=True)]


def complete_checksum(header: VnetHeader, packet: memoryview) -> None:
    """Complete the checksum of a packet that is no super-packet, in place. Afterwards nothing is left to do in it.

    `header` fits the packet, as `vnet.parse_untrusted` checks it, and `packet` has no bytes behind its length.
    """
    if not header.flags & NEEDS_CSUM:
        return
    covered = packet[header.csum_start :]
    count = len(covered) // 4
    total = int(np.frombuffer(covered, dtype="<u4", count=count).sum(dtype=np.uint64))
    total += int.from_bytes(covered[count * 4 :], "little")
    checksum = -total % _MODULUS or 0xFFFF  # not 0, which UDP has for "none"
    covered[header.csum_offset : header.csum_offset + 2] = checksum.to_bytes(2, "little")


def _split(
    packet: memoryview | bytes, inner: InnerPacket, *, segment_bytes: int
) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Return a row for each segment, with the super-packet's headers and its own payload, and the segments' lengths.

    Rows are longer than their segments by zeros, to an even length.
    """
    payload = np.frombuffer(packet, dtype=np.uint8, offset=inner.payload_at, count=inner.length - inner.payload_at)
    full, rest = divmod(len(payload), segment_bytes)
    count = full + (rest > 0 or full == 0)
    length = inner.payload_at + segment_bytes
    rows = np.zeros((count, length + length % 2), dtype=np.uint8)
    rows[:, : inner.payload_at] = np.frombuffer(packet, dtype=np.uint8, count=inner.payload_at)
    rows[:full, inner.payload_at : length] = payload[: full * segment_bytes].reshape(full, segment_bytes)
    lengths = np.full(count, length)
    if count > full:
        rows[full, inner.payload_at : inner.payload_at + rest] = payload[full * segment_bytes :]
        lengths[full] = inner.payload_at + rest
    return rows, lengths


def _finish_ipv4(rows: Bytes, *, header_bytes: int, lengths: npt.NDArray[np.int64]) -> None:
    identification = int.from_bytes(rows[0, 4:6].tobytes(), "big")
    rows[:, 2:4] = _big_endian(lengths)
    rows[:, 4:6] = _big_endian(identification + np.arange(len(rows)))
    rows[:, 10:12] = 0
    rows[:, 10:12] = _checksums(rows[:, :header_bytes])


def _finish_tcp(rows: Bytes, *, at: int, segment_bytes: int) -> None:
    sequence = int.from_bytes(rows[0, at + 4 : at + 8].tobytes(), "big")
    sequences = (sequence + segment_bytes * np.arange(len(rows))).astype(">u4")  # modulo 2^32
    rows[:, at + 4 : at + 8] = sequences.view(np.uint8).reshape(-1, 4)
    rows[:-1, at + 13] &= 0xFF - _FIN_PSH
    rows[1:, at + 13] &= 0xFF - _CWR


def _finish_checksums(rows: Bytes, inner: InnerPacket, *, lengths: npt.NDArray[np.int64], is_partial: bool) -> None:
    at = inner.header_bytes
    field = at + (TCP_CHECKSUM_AT if inner.protocol == TCP else UDP_CHECKSUM_AT)
    if is_partial:
        pseudo_header = int.from_bytes(rows[0, field : field + 2].tobytes(), "big") - (inner.length - at)
    else:
        pseudo_header = int.from_bytes(inner.source + inner.destination, "big") % _MODULUS + inner.protocol
    rows[:, field : field + 2] = _big_endian((pseudo_header + lengths - at) % _MODULUS)
    checksums = _checksums(rows[:, at:])
    if inner.protocol == UDP:
        checksums[(checksums == 0).all(axis=1)] = 0xFF  # UDP has 0 for "none"
    rows[:, field : field + 2] = checksums


def _checksums(rows: Bytes) -> Bytes:
    """Return the checksum of each row, as two bytes."""
    sums: npt.NDArray[np.uint32] = rows.view("<u2").sum(axis=1, dtype=np.uint32)
    sums = (sums & 0xFFFF) + (sums >> 16)
    sums = (sums & 0xFFFF) + (sums >> 16)
    return (sums ^ 0xFFFF).astype("<u2").view(np.uint8).reshape(-1, 2)


def _big_endian(values: npt.NDArray[np.int64]) -> Bytes:
    """Return the low 16 bits of each value, as two bytes."""
    return (values & 0xFFFF).astype(">u2").view(np.uint8).reshape(-1, 2)


_DONT_FRAGMENT: Final = 0x4000
_MORE: Final = 0x2000
_OFFSET: Final = 0x1FFF
_UNIT_BYTES: Final = 8
"""Of a fragment's offset."""


def fragments(packet: memoryview | bytes, inner: InnerPacket, *, mtu: int) -> list[bytes]:
    """Return the fragments of an IPv4 packet (RFC 791, section 3.2), or of a fragment, each `mtu` bytes at most.

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
