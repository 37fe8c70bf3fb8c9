"""Packets that no conforming endpoint sends, by seed: noise, mutated captures, every field at its limits.

A packet's context decides how far it is processed: with a random one it is dropped at once; with that of an open peer
all of it is processed. Captured packets get one or the other. Their own contexts are not used: an on-path attacker can
always forge plain text, which is out of scope.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from random import Random
from typing import Any, Final, get_args

import numpy as np

from srd.proto.wire.control import Ack, Control, Hello, PathReport
from srd.proto.wire.data import (
    ABORTED,
    HEADER,
    HEADER_BYTES,
    IMMEDIATE,
    MIN_DATAGRAM_BYTES,
    VERSION,
    Opcode,
    PacketType,
)

EDGES: Final = (
    0,
    1,
    2,
    63,
    64,
    127,
    128,
    255,
    256,
    1 << 15,
    (1 << 16) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 63,
    (1 << 64) - 1,
)
"""Values for fields: both limits of every width, the limits of the protocol, and their neighbours."""
_WIDTHS: Final = {1: ">B", 2: ">H", 4: ">I", 8: ">Q"}
_CONTEXT_AT: Final = 8
_PREFIX_BYTES: Final = 16
MAX_PAYLOAD_BYTES: Final = 1400
_FLAGS: Final = [*Opcode, *(flag | extra for flag in Opcode for extra in (IMMEDIATE, ABORTED)), 0x10, 0xFF]


@dataclass(frozen=True, slots=True)
class Session:
    """An open peer, from the attacker's view."""

    context: int
    """The target's context, which packets to it carry."""
    own_context: int
    segment_bytes: int
    """Payload of a full data packet."""


class Forge:
    """Creates packets; `captured` are datagrams of the transfer to the target."""

    def __init__(self, rng: Random, *, sessions: Sequence[Session], captured: Sequence[bytes]) -> None:
        self._rng = rng
        self._sessions = sessions
        self._captured = captured
        self._psn = 0

    def packet(self) -> bytes:
        """Return one packet of a random kind."""
        kinds: list[Callable[[], bytes]] = [
            self._noise,
            self._control,
            self._data,
            self._mutated,
            self._edge,
            self._edge,
        ]
        return self._rng.choice(kinds)()

    def _session(self) -> Session:
        """Return an open peer, or one with a random context."""
        rng = self._rng
        if self._sessions and rng.random() < 0.7:
            return rng.choice(self._sessions)
        return Session(rng.getrandbits(64), rng.getrandbits(64), MAX_PAYLOAD_BYTES)

    def _noise(self) -> bytes:
        """Return random bytes of any length, nearly always after a valid version and type."""
        rng = self._rng
        body = rng.randbytes(rng.choice([0, 1, 15, 16, 17, HEADER_BYTES - 1, HEADER_BYTES, rng.randrange(1500)]))
        return body if rng.random() < 0.1 else bytes([VERSION, rng.choice(list(PacketType))]) + body

    def _control(self) -> bytes:
        """Return a well-formed but unexpected control packet of any kind."""
        session, rng = self._session(), self._rng
        kind: type = rng.choice(get_args(Control))
        return _control_packet(kind, session, rng)

    def _data(self) -> bytes:
        """Return data of an open peer: well-formed, or violating some rules of messages and windows."""
        session, rng = self._session(), self._rng
        self._psn += rng.choice([0, 1, 1, 1, 2, 3000])
        length = rng.choice([0, 1, session.segment_bytes, 2 * session.segment_bytes, 1 << 20, (1 << 32) - 1])
        payload_bytes = rng.choice(
            [0, 1, min(length, session.segment_bytes), min(session.segment_bytes, MAX_PAYLOAD_BYTES)]
        )
        psn, edge = self._psn, rng.choice(EDGES)
        header = np.zeros(1, HEADER)
        header["version"], header["type"], header["flags"] = VERSION, PacketType.DATA, rng.choice(_FLAGS)
        header["path"] = edge & 0xFF
        header["path_sequence"] = rng.choice([psn, edge]) & 0xFFFFFFFF
        header["context"] = session.context
        header["psn"] = rng.choice([psn, psn, edge])
        header["sent_us"], header["immediate"] = rng.getrandbits(32), rng.getrandbits(32)
        header["message"] = rng.choice([psn, edge]) & 0xFFFFFFFF
        header["length"] = length
        header["offset"] = rng.choice([0, 0, session.segment_bytes, edge])
        header["key"] = rng.choice([0, rng.getrandbits(64)])
        return header.tobytes() + bytes(payload_bytes)

    def _mutated(self) -> bytes:
        """Return a captured datagram with another context, and flipped bits, truncated or extended."""
        rng = self._rng
        if not self._captured:
            return self._noise()
        packet = bytearray(rng.choice(self._captured))
        if len(packet) >= _PREFIX_BYTES:
            packet[_CONTEXT_AT:_PREFIX_BYTES] = self._session().context.to_bytes(8, "big")
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
            struct.pack_into(_WIDTHS[width], packet, at, rng.choice(EDGES) & ((1 << 8 * width) - 1))
        return bytes(packet)


def _control_packet(kind: type, session: Session, rng: Random) -> bytes:
    """Return a packet of a kind, with values that its fields may have."""
    values: dict[str, Any] = {
        "context": session.context,
        "own_context": session.own_context,
        "bitmap": rng.getrandbits(rng.choice([8, 64, 1024])) & ~1,
        "reports": tuple(PathReport(rng.randrange(4), rng.randrange(9), 0, 0, 1, 0) for _ in range(rng.randrange(3))),
        "cookie": rng.randbytes(rng.choice([0, 24, 64])),
        "datagram_bytes": rng.choice([MIN_DATAGRAM_BYTES, 1472]),
        "size_bytes": rng.choice([24, MIN_DATAGRAM_BYTES]),
        "credit_bytes": rng.choice([0, 1 << 25, (1 << 63) - 1]),
        "credit_messages": rng.choice([0, 1 << 10, (1 << 32) - 1]),
        "max_message_bytes": 1 << 20,
        "window_packets": 4096,
        "token": rng.getrandbits(64),
        "flags": rng.randrange(2) if kind is Ack else 0,
        "path": rng.randrange(130),
        "towards": rng.randrange(130),
        "status": rng.randrange(20),
    }
    if kind is Hello:
        values["context"] = 0
    known = {name: values.get(name, rng.randrange(64)) for name in signature(kind).parameters}
    encoded: bytes = kind(**known).encode()
    return encoded
