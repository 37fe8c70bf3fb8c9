"""Packets that no conforming endpoint sends, by seed: noise, mutated captures, every field at its limits.

A packet's context decides how far it is processed: with a random one it is dropped at once; with that of an open peer
all of it is processed. Captured packets get one or the other. Their own contexts are not used: an on-path attacker can
always forge plain text, which is out of scope.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import fields
from random import Random
from typing import Any, Final, get_args

from scripts.harness.liar import FLAGS, WIDE_EDGES, Fields
from scripts.harness.rogue import RoguePeer
from srd.proto.wire.control import Accept, Ack, Control, Hello, Nack, PathReport, Protected, Reset
from srd.proto.wire.data import HEADER_BYTES, MIN_DATAGRAM_BYTES, VERSION, PacketType

_WIDTHS: Final = {1: ">B", 2: ">H", 4: ">I", 8: ">Q"}
_CONTEXT_AT: Final = 8
_PREFIX_BYTES: Final = 16
MAX_PAYLOAD_BYTES: Final = 1400
ANY_KIND: Final = ("noise", "control", "data", "mutated", "edge", "edge")
UNSEALED_SHARE: Final = 0.2
"""Fraction of the packets of open peers that are not encrypted, although they should be."""
_FLAGS: Final = (*FLAGS, 0x10, 0xFF)
_EDGES: Final = (*WIDE_EDGES, 256)


class PacketForge:
    """Creates packets; `captured` are datagrams of the transfer to the target."""

    def __init__(self, rng: Random, *, peers: Sequence[RoguePeer] = (), captured: Sequence[bytes] = ()) -> None:
        self._rng = rng
        self.captured = captured
        self._psn = 0
        self._kinds: dict[str, Callable[[], bytes]] = {
            "noise": self._noise,
            "control": self._control,
            "data": self._data,
            "mutated": self._mutated,
            "edge": self._edge,
        }
        self.use(peers)

    def use(self, peers: Sequence[RoguePeer]) -> None:
        """Address these open peers from now on, besides contexts of nobody."""
        self._peers = {peer.context.to_bytes(8, "big"): peer for peer in peers}

    def packet(self, kind: str = "") -> bytes:
        return self._sealed(self._kinds[kind or self._rng.choice(ANY_KIND)]())

    def _sealed(self, packet: bytes) -> bytes:
        """Return a packet of an open peer as an authentic one, but for some that are not; any other as it is."""
        peer = self._peers.get(packet[_CONTEXT_AT:_PREFIX_BYTES])
        if peer is None or self._rng.random() < UNSEALED_SHARE:
            return packet
        return peer.seal(packet)

    def _peer(self) -> RoguePeer:
        """Return an open peer, or one with a random context."""
        rng = self._rng
        if self._peers and rng.random() < 0.7:
            return rng.choice(list(self._peers.values()))
        size_bytes = HEADER_BYTES + MAX_PAYLOAD_BYTES
        return RoguePeer(Accept(rng.getrandbits(64), rng.getrandbits(64), 0, 0, 0, 0, size_bytes), session=None)

    def _noise(self) -> bytes:
        """Return random bytes of any length, nearly always after a valid version and type."""
        rng = self._rng
        body = rng.randbytes(rng.choice([0, 1, 15, 16, 17, HEADER_BYTES - 1, HEADER_BYTES, rng.randrange(1500)]))
        return body if rng.random() < 0.1 else bytes([VERSION, rng.choice(list(PacketType))]) + body

    def _control(self) -> bytes:
        peer, rng = self._peer(), self._rng
        kind: type = rng.choice(get_args(Control))
        return _control_packet(kind, peer, rng)

    def _data(self) -> bytes:
        """Return data of an open peer: well-formed, or violating some rules of messages and windows."""
        peer, rng = self._peer(), self._rng
        self._psn += rng.choice([0, 1, 1, 1, 2, 3000])
        psn, edge, full = self._psn, rng.choice(_EDGES), peer.datagram_bytes - HEADER_BYTES
        length = rng.choice([0, 1, full, 2 * full, 1 << 20, (1 << 32) - 1])
        header = Fields(
            peer.context, flags=rng.choice(_FLAGS), path=edge, path_sequence=rng.choice([psn, edge]),
            psn=rng.choice([psn, psn, edge]), sent_us=rng.getrandbits(32), message=rng.choice([psn, edge]),
            length=length, immediate=rng.getrandbits(32), offset=rng.choice([0, 0, full, edge]),
            key=rng.choice([0, rng.getrandbits(64)]),
        )  # fmt: skip
        return header.encode() + bytes(rng.choice([0, 1, min(length, full), min(full, MAX_PAYLOAD_BYTES)]))

    def _mutated(self) -> bytes:
        """Return a captured datagram with another context, and flipped bits, truncated or extended."""
        rng = self._rng
        if not self.captured:
            return self._noise()
        packet = bytearray(rng.choice(self.captured))
        if len(packet) >= _PREFIX_BYTES:
            packet[_CONTEXT_AT:_PREFIX_BYTES] = self._peer().context.to_bytes(8, "big")
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(packet))
            if not _CONTEXT_AT <= at < _PREFIX_BYTES:
                packet[at] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del packet[rng.randrange(len(packet)) :]
        if rng.random() < 0.1:
            packet += rng.randbytes(rng.randrange(200))
        return bytes(packet)

    def _edge(self) -> bytes:
        """Return a well-formed packet with one field, at any offset, at a limit."""
        rng = self._rng
        packet = bytearray(self._data() if rng.random() < 0.4 else self._control())
        width = rng.choice(list(_WIDTHS))
        at = rng.randrange(0, max(min(len(packet), 96) - width, 1))
        at -= at % width  # nearly all fields are aligned
        if at + width <= len(packet) and not (at < _PREFIX_BYTES and at + width > _CONTEXT_AT):
            struct.pack_into(_WIDTHS[width], packet, at, rng.choice(_EDGES) & ((1 << 8 * width) - 1))
        return bytes(packet)


def _control_packet(kind: type, peer: RoguePeer, rng: Random) -> bytes:
    """Return a packet of a kind, with values that its fields may have."""
    values: dict[str, Any] = {
        "context": peer.context,
        "own_context": peer.own_context,
        "bitmap": rng.getrandbits(rng.choice([8, 64, 1024])) & ~1,
        "reports": tuple(PathReport(rng.randrange(4), rng.randrange(9), 0, 0, 1, 0) for _ in range(rng.randrange(3))),
        "cookie": rng.randbytes(rng.choice([0, 24, 64])),
        "message": rng.randbytes(rng.choice([0, 48, 113, 200])),
        "credential": rng.randbytes(rng.choice([0, 31, 32, 900])),
        "security": rng.randrange(4),
        "reason": rng.randrange(256),
        "datagram_bytes": rng.choice([MIN_DATAGRAM_BYTES, 1472]),
        "size_bytes": rng.choice([24, MIN_DATAGRAM_BYTES]),
        "credit_bytes": rng.choice([0, 1 << 25, (1 << 63) - 1]),
        "credit_messages": rng.choice([0, 1 << 10, (1 << 32) - 1]),
        "max_message_bytes": 1 << 20,
        "window_packets": 4096,
        "token": rng.randbytes(16) if kind is Reset else rng.getrandbits(64),
        "flags": rng.randrange(2) if kind is Ack else 0,
        "path": rng.randrange(130),
        "remote_path": rng.randrange(130),
        "status": rng.randrange(20),
    }
    if kind is Hello:
        values["context"] = 0
    if kind is Protected:
        prefix = bytes([VERSION, PacketType.PROTECTED]) + rng.randbytes(6) + peer.context.to_bytes(8, "big")
        return prefix + rng.randbytes(rng.choice([0, 16, 48, 100]))
    if kind is Nack:
        values["message"] = rng.randrange(64)
    names = getattr(kind, "_fields", None) or [field.name for field in fields(kind)]  # of a named tuple or a dataclass
    known = {name: values.get(name, rng.randrange(64)) for name in names}
    encoded: bytes = kind(**known).encode()
    return encoded
