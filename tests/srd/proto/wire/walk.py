"""Splits a packet into fields by the table in `srd.proto.wire.fields`, for comparison with other decoders."""

from __future__ import annotations

from srd.proto.wire.data import PacketType
from srd.proto.wire.fields import BODIES, Field, prefix_of

Value = int | bytes | list[dict[str, "Value"]]


def walk(packet: bytes) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return the fields of the prefix and of the body. The packet must be well-formed, and have nothing behind."""
    kind = PacketType(packet[1])
    prefix, rest = split(packet, prefix_of(kind))
    body, rest = split(rest, BODIES[kind])
    assert not rest
    return prefix, body


def split(data: bytes, fields: tuple[Field, ...]) -> tuple[dict[str, Value], bytes]:
    """Return fields by name, and what is left."""
    found: dict[str, Value] = {}
    for field in fields:
        if field.only_if and not found[field.only_if]:
            continue
        if field.records:
            count, records = found[str(field.size)], []
            assert isinstance(count, int)
            for _ in range(count):
                record, data = split(data, field.records)
                records.append(record)
            found[field.name] = records
            continue
        size = found[field.size] if isinstance(field.size, str) else len(data) if field.size is None else field.size
        assert isinstance(size, int)
        raw, data = data[:size], data[size:]
        assert len(raw) == size
        is_number = isinstance(field.size, int) and not field.is_bytes
        found[field.name] = int.from_bytes(raw, "big") if is_number else raw
    return found, data
