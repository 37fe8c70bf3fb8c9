"""The Wireshark dissector against the table of fields and the project's decoder, by real tshark."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from srd.contrib.scapy import SRD, SRDData
from srd.proto.wire.control import NO_PATH, Ack, Hello, Nack, Refuse, decode_untrusted
from srd.proto.wire.data import ABORTED, DEFAULT_PORT, WITH_ACK, PacketType
from srd.proto.wire.fields import BODIES, DATA_FLAGS, PREFIX, Field
from srd.proto.wire.status import Status
from tests.srd.contrib.random_packets import damaged, is_malformed, packet
from tests.srd.contrib.tshark import Fields, Frame, dissect, tshark, write
from tests.srd.proto.wire.test_fields import check
from tests.srd.proto.wire.walk import Value, walk

pytestmark = pytest.mark.long

TYPES = {1: "FT_UINT8", 2: "FT_UINT16", 4: "FT_UINT32", 8: "FT_UINT64"}
SEED = 22
ADDED = {f"srd.ack.{name}" for name in ("missing", "not_ready", "received", "receiver_not_ready")} | {
    *("srd.ack.report.frame", "srd.ack.report.rtt", "srd.data.opcode", "srd.data.has_immediate", "srd.data.aborted"),
    *("srd.data.with_ack", "srd.data.status", "srd.data.ciphertext", "srd.data.message_aborted"),
}
"""Of single packet types: single bits, and what was found out."""


def named(fields: tuple[Field, ...], prefix: str) -> dict[str, Field]:
    """Return the table's fields by the names that Wireshark has for them."""
    found: dict[str, Field] = {}
    for field in fields:
        name = f"{prefix}.{field.name}"
        found |= named(field.records, name.removesuffix("s")) if field.records else {name: field}
    return found


def all_fields() -> dict[str, Field]:
    found = named(PREFIX, "srd")
    for kind, body in BODIES.items():
        found |= named(body, f"srd.{kind.name.lower()}")
    return found


def rows(report: str, mark: str) -> list[list[str]]:
    return [row for line in tshark("-G", report).splitlines() if (row := line.split("\t"))[0] == mark]


def test_fields__are_those_of_the_table() -> None:
    types = {row[2]: (row[3], row[5]) for row in rows("fields", "F") if row[2].startswith("srd.")}
    for name, field in all_fields().items():
        is_number = isinstance(field.size, int) and not field.is_bytes
        wanted = TYPES[field.size] if is_number and isinstance(field.size, int) else "FT_BYTES"
        assert types.pop(name)[0] == wanted, name
    of_packets = {name for name in types if name.split(".")[1].upper() in PacketType.__members__}
    assert of_packets == ADDED


def example(field: str, value: int, *, kind: PacketType = PacketType.NACK) -> tuple[bytes, str]:
    """Return a packet in which a field has a value, and the name of that field in it."""
    match field:
        case "type":
            return packet(PacketType(value), rng=Random(SEED)), "Packet type"
        case "security":
            return Hello(1, 2, 3, 4, 64, 600, b"cookie", 0, value, b"message").encode(), "Security mode"
        case "reason":
            return Refuse(1, 8, value).encode(), "Reason"
        case "flags":
            return bytes(SRD(flags=value) / SRDData()), "Opcode"
        case "aborted":
            return bytes(SRD(flags=ABORTED) / SRDData(immediate=value)), "Status that the message was aborted with"
    return (Nack(1, 2, value) if kind == PacketType.NACK else Refuse(1, value, 0)).encode(), "Status"


def test_values__have_the_names_of_the_enumerations(tmp_path: Path) -> None:
    cases = [
        (*example(field, member), f"{member.name} ({member.value})")
        for field, names in {field.name: field.names for field in (*all_fields().values(), DATA_FLAGS)}.items()
        for member in names or ()
    ]
    for status in Status:
        named_so = f"{status.name} ({status.value})"
        cases += [
            (*example("aborted", status), named_so),
            (*example("status", status, kind=PacketType.REFUSE), named_so),
        ]
    text = tshark("-r", write(tmp_path / "names.pcapng", (Frame(case[0]) for case in cases)), "-O", "srd")
    shown = text.split("\nFrame ")
    assert len(shown) == len(cases) > 60
    for frame, (_, label, wanted) in zip(shown, cases, strict=True):
        assert f"{label}: {wanted}\n" in frame


def test_port__is_nobody_elses() -> None:
    """Without the dissector, Wireshark has none for it."""
    decodes = [row for row in rows("decodes", "udp.port") if row[1] == str(DEFAULT_PORT)]
    assert decodes == [["udp.port", str(DEFAULT_PORT), "srd"]]


def compare(shown: Fields, prefix: str, values: dict[str, Value]) -> None:
    for name, value in values.items():
        if isinstance(value, list):
            for index, record in enumerate(value):
                one = {key: [each[index]] for key, each in shown.items() if key.startswith(f"{prefix}.report.")}
                compare(one, f"{prefix}.report", record)
            continue
        texts = shown.get(f"{prefix}.{name}", [""])
        if isinstance(value, bytes):
            assert bytes.fromhex(texts[0].replace(":", "")) == value, name
        else:
            assert int(texts[0], 0) == value, name


def test_packets__have_the_decoders_values(tmp_path: Path) -> None:
    rng = Random(SEED)
    packets = [packet(kind, rng=rng) for kind in PacketType for _ in range(30)]
    frames = dissect(write(tmp_path / "all.pcapng", map(Frame, packets)))
    assert len(frames) == len(packets)
    for data, (shown,) in zip(packets, frames, strict=True):
        prefix, body = walk(data)
        if data[1] not in {PacketType.DATA, PacketType.PROTECTED}:
            check(decode_untrusted(data), body)
        assert "srd.malformed" not in shown, data.hex()
        compare(shown, "srd", prefix)
        compare(shown, f"srd.{PacketType(data[1]).name.lower()}", body)


def test_packets__an_ack_behind_a_message(tmp_path: Path) -> None:
    ack = Ack(7, 1234, 0b100, 5, 6, (), path=NO_PATH, remote_path=NO_PATH).encode()
    message = bytes(SRD(flags=WITH_ACK, context=7) / SRDData(psn=9, length=5)) + b"hello"
    one, other = dissect(write(tmp_path / "ack.pcapng", [Frame(message + ack)]))[0]
    assert (one["srd.data.psn"], one["srd.data.payload"]) == (["9"], [b"hello".hex(":")])
    assert (other["srd.ack.cumulative"], other["srd.path"]) == (["1234"], [str(NO_PATH)])
    assert "srd.malformed" not in one | other


def test_packets__malformed_ones_are_those_that_the_decoder_refuses(tmp_path: Path) -> None:
    rng = Random(SEED)
    packets = [b"", *(damaged(kind, rng=rng) for kind in PacketType for _ in range(100))]
    frames = dissect(write(tmp_path / "damaged.pcapng", map(Frame, packets)))
    wrong = [
        data.hex()
        for data, layers in zip(packets, frames, strict=True)
        if data and ("srd.malformed" in layers[0]) != is_malformed(data)
    ]
    assert not wrong
    assert 100 < sum(map(is_malformed, packets)) < len(packets) - 100, "both occur"
