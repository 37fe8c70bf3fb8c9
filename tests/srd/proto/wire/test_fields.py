"""The table of fields against PROTOCOL.md, the data header and the encoders of control packets, field by field."""

from __future__ import annotations

import pytest
from hypothesis import given

from srd.proto.wire.control import Ack, Control, PathReport
from srd.proto.wire.data import HEADER, VERSION, PacketType
from srd.proto.wire.fields import BODIES, PREFIX, REPORT, Field, prefix_of
from tests.srd.proto.wire.test_control import PACKETS
from tests.srd.proto.wire.test_data import table
from tests.srd.proto.wire.walk import Value, walk

LENGTHS = ("_length", "_count")


def rows(fields: tuple[Field, ...], *, at: int = 0) -> list[tuple[int, int, str]]:
    """(offset, bytes, field) of those at the beginning whose size is fixed."""
    found = []
    for field in fields:
        if not isinstance(field.size, int):
            break
        found.append((at, field.size, field.name))
        at += field.size
    return found


def test_prefix__and_data_are_the_dtype() -> None:
    assert HEADER.fields is not None
    dtype = [(int(HEADER.fields[name][1]), HEADER[name].itemsize, name) for name in HEADER.names or ()]
    assert rows((*prefix_of(PacketType.DATA), *BODIES[PacketType.DATA])) == dtype
    assert rows(PREFIX) == table("Common prefix")


def test_report__is_that_of_protocol_md() -> None:
    assert rows(REPORT) == table("Path report")


@pytest.mark.parametrize("kind", PacketType, ids=lambda kind: kind.name)
def test_bodies__are_those_of_protocol_md(kind: PacketType) -> None:
    """The same fields in the same order, at the same offsets as far as these are fixed."""
    specified = table(f"{kind.name} ({kind.value})")
    if kind == PacketType.DATA:
        specified = specified[len(PREFIX) :]
    fixed = rows(BODIES[kind], at=16)
    assert [row for row in specified if row[0] < 16 + sum(size for _, size, _ in fixed)] == fixed
    names = [name for _, _, name in specified]
    if kind == PacketType.ACK:
        assert names.pop() == "reports_and_bitmap"
        names += ["reports", "bitmap"]
    assert [field.name for field in BODIES[kind] if field.name != "payload"] == names


def test_bodies__of_every_type() -> None:
    assert set(BODIES) == set(PacketType)


def value_of(packet: Control | PathReport, name: str) -> Value | None:
    """Return a packet's value as `walk` gives it; None for what it does not name."""
    if name == "bitmap":
        assert isinstance(packet, Ack)
        return packet.bitmap.to_bytes((packet.bitmap.bit_length() + 7) // 8, "little")
    if name == "reports":
        assert isinstance(packet, Ack)
        return [{field.name: value_of(report, field.name) or 0 for field in REPORT} for report in packet.reports]
    value = getattr(packet, name, None)
    assert value is None or isinstance(value, int | bytes)
    return value


def check(packet: Control, fields: dict[str, Value]) -> None:
    """Compare all fields with a packet's values; lengths with those of what they are the lengths of."""
    for name, value in fields.items():
        if name.endswith(LENGTHS):
            of = {"report_count": "reports"}.get(name) or name.removesuffix("_length")
            measured = value_of(packet, of)
            assert isinstance(measured, bytes | list)
            assert value == len(measured)
        elif name in {"padding", "reserved"}:
            assert isinstance(value, bytes)
            assert not value.strip(b"\0")
        elif name == "reports":
            assert isinstance(value, list)
            without = [{**report, "reserved": 0} for report in value]
            assert without == value_of(packet, name)
        else:
            assert value == value_of(packet, name), name


@given(PACKETS)
def test_walk__has_what_the_encoders_wrote(packet: Control) -> None:
    prefix, body = walk(packet.encode())
    assert isinstance(prefix["type"], int)
    assert PacketType(prefix["type"]).name.replace("_", "") == type(packet).__name__.upper()
    assert prefix["version"] == VERSION
    assert prefix["flags"] == 0
    for name in ("path", "path_sequence", "context"):
        assert prefix[name] == (value_of(packet, name) or 0)
    check(packet, body)
