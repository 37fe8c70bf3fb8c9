"""Packets of every type with random values, made by the table of fields; and such packets damaged."""

from __future__ import annotations

from random import Random

from srd.proto.base.errors import PacketError
from srd.proto.base.security import MAX_CREDENTIAL_BYTES
from srd.proto.wire.control import MAX_COOKIE_BYTES, decode_untrusted
from srd.proto.wire.data import HEADER_BYTES, MIN_DATAGRAM_BYTES, PREFIX_BYTES, VERSION, PacketType
from srd.proto.wire.fields import BODIES, PREFIX, Field
from srd.proto.wire.protected import TAG_BYTES

ZERO_UNLESS = {
    PacketType.HELLO: {"path"},
    PacketType.RETRY: {"path", "context"},
    PacketType.REFUSE: {"context"},
    PacketType.RESET: {"context"},
    PacketType.SECURE_ACCEPT: {"context"},
    PacketType.PROTECTED: {"path_sequence", "context"},
}
"""Types whose prefix has to be 0 but for these fields."""
MOST_BYTES = {"cookie_length": MAX_COOKIE_BYTES, "credential_length": MAX_CREDENTIAL_BYTES, "report_count": 8}


def packet(kind: PacketType, *, rng: Random) -> bytes:
    """Return a well-formed packet."""
    values = {"version": VERSION, "type": kind.value, "flags": 0}
    if kind == PacketType.DATA:
        values |= {"flags": rng.choice((0, 2, 3, 4, 6, 7)), "path": rng.randrange(128)}
    used = ZERO_UNLESS.get(kind, {field.name for field in PREFIX})
    values |= {field.name: 0 for field in PREFIX[3:] if field.name not in used}
    prefix, _ = _made(PREFIX, values, rng=rng)
    chosen = {"window_packets": rng.randrange(64, 1 << 32), "datagram_bytes": rng.randrange(MIN_DATAGRAM_BYTES, 9000)}
    if kind == PacketType.HELLO:
        chosen["message_length"] = rng.randrange(100)
    body, values = _made(BODIES[kind], chosen, rng=rng)
    if kind == PacketType.HELLO:
        body = body.ljust(values["datagram_bytes"] - PREFIX_BYTES, b"\0")[: values["datagram_bytes"] - PREFIX_BYTES]
    return prefix + body


def _made(fields: tuple[Field, ...], values: dict[str, int], *, rng: Random) -> tuple[bytes, dict[str, int]]:
    out, values = b"", dict(values)
    for field in fields:
        if field.only_if and not values[field.only_if]:
            continue
        if field.records:
            out += b"".join(_made(field.records, {}, rng=rng)[0] for _ in range(values[str(field.size)]))
        elif isinstance(field.size, str):
            content = rng.randbytes(values[field.size])
            out += content if field.name != "bitmap" or not content else bytes([content[0] & 0xFE]) + content[1:]
        elif field.size is None:
            out += bytes(rng.randrange(50)) if field.name == "padding" else rng.randbytes(rng.randrange(32, 300))
        elif field.is_bytes:
            out += bytes(field.size)
        else:
            most = MOST_BYTES.get(field.name, 200) if field.name.endswith(("_length", "_count")) else 256**field.size
            values.setdefault(field.name, rng.randrange(most))
            out += values[field.name].to_bytes(field.size, "big")
    return out, values


def damaged(kind: PacketType, *, rng: Random) -> bytes:
    """Return such a packet cut short, with bits flipped, or with a random body or nothing but random bytes."""
    whole = packet(kind, rng=rng)
    match rng.randrange(5):
        case 0:
            return whole[: rng.randrange(len(whole))]
        case 1:
            flipped = bytearray(whole)
            for _ in range(rng.randrange(1, 4)):
                flipped[rng.randrange(min(len(flipped), 90))] ^= 1 << rng.randrange(8)
            return bytes(flipped)
        case 2:
            return whole[:2] + rng.randbytes(rng.randrange(200))
        case 3:
            return whole + rng.randbytes(rng.randrange(1, 40))
        case _:
            return rng.randbytes(rng.randrange(100))


def is_malformed(data: bytes) -> bool:
    """Whether an endpoint drops these bytes for what they are, whoever sent them."""
    if len(data) < PREFIX_BYTES or data[1] not in {PacketType.DATA, PacketType.PROTECTED}:
        try:
            decode_untrusted(data)
        except PacketError:
            return True
        return False
    if data[0] != VERSION:
        return True
    flags, path = data[2], data[3]
    if data[1] == PacketType.PROTECTED:  # srd.secure.session, open_control_untrusted
        return len(data) < 2 * PREFIX_BYTES + TAG_BYTES or bool(flags & 0x7F or path)
    payload_bytes = len(data) - HEADER_BYTES
    is_odd = flags & 0x10 and flags & 0x0B  # WITH_ACK goes with a SEND only, and not with ABORTED
    has_none = flags & 3 == 1 or flags & 8  # READ or ABORTED; a tag, if it is encrypted
    return (
        payload_bytes < 0
        or bool(flags & 0x60 or is_odd)
        or path > 127
        or bool(has_none and payload_bytes not in {0, TAG_BYTES})
    )
