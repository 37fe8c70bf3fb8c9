"""srd.contrib.scapy: each packet as the project's own encoders and decoders have it, and any bytes."""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw, fuzz

import srd.contrib.scapy as layers
from srd.contrib.scapy import SRD, SRDAck, SRDData, SRDHello, SRDNack, SRDProbe, SRDProtected, SRDRefuse, SRDReport
from srd.proto.wire.control import Ack, Control, Hello, Nack, Probe, Protected, decode_untrusted
from srd.proto.wire.data import (
    ABORTED,
    DEFAULT_PORT,
    HEADER_BYTES,
    IMMEDIATE,
    PREFIX_BYTES,
    VERSION,
    Burst,
    GroDatagram,
    Opcode,
    PacketType,
    received_bursts_untrusted,
    write_headers,
)
from srd.proto.wire.protected import KEY_PHASE
from tests.srd.proto.wire.test_control import PACKETS, U8, U32, U64
from tests.srd.proto.wire.walk import Value, walk

PROTECTED = st.builds(
    lambda head, rest: Protected(int.from_bytes(head[6:], "big"), bytes([VERSION, PacketType.PROTECTED]) + head + rest),
    st.binary(min_size=14, max_size=14),
    st.binary(max_size=300),
)
WITH_BODY = st.one_of(PACKETS, PROTECTED).filter(lambda packet: len(packet.encode()) > PREFIX_BYTES)
"""A layer without a byte is none to scapy."""
HEADERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        **dict.fromkeys(("flags", "path"), U8),
        **dict.fromkeys(("path_sequence", "sent_us", "message", "length", "immediate"), U32),
        **dict.fromkeys(("context", "psn", "offset", "key"), U64),
    }
)


def layer_of(packet: bytes) -> Any:
    name = PacketType(packet[1]).name.title().replace("_", "")
    return getattr(layers, f"SRD{name}")


def built(packet: bytes) -> bytes:
    """Build a packet from the values of its fields, without its lengths and counts, which scapy computes."""
    found: tuple[dict[str, Any], dict[str, Any]] = walk(packet)
    prefix = {name: value for name, value in found[0].items() if name != "type"}
    body = {name: value for name, value in found[1].items() if not name.endswith(("_length", "_count"))}
    if "reports" in body:
        body["reports"] = [SRDReport(**report) for report in body["reports"]]
    return bytes(SRD(**prefix) / layer_of(packet)(**body))


def values(layer: Any, names: list[str]) -> dict[str, Value]:
    found = {name: layer.getfieldval(name) for name in names}
    if "reports" in found:
        found["reports"] = [values(report, [each.name for each in report.fields_desc]) for report in found["reports"]]
    return found


@given(WITH_BODY)
def test_layers__have_the_values_of_the_encoder(packet: Control) -> None:
    data = packet.encode()
    prefix, body = walk(data)
    dissected = SRD(data)
    assert values(dissected, list(prefix)) == prefix
    assert type(dissected.payload) is layer_of(data)
    assert values(dissected.payload, list(body)) == body
    assert bytes(dissected) == data
    assert SRD(bytes(dissected)).payload.__class__ is dissected.payload.__class__


@given(st.one_of(PACKETS, PROTECTED))
def test_layers__build_what_the_decoder_reads(packet: Control) -> None:
    assert built(packet.encode()) == packet.encode()
    assert decode_untrusted(built(packet.encode())) == packet


@given(fields=HEADERS, payload=st.binary(max_size=100))
def test_data__as_the_core_writes_and_reads_it(fields: dict[str, Any], payload: bytes) -> None:
    prefix = {name: fields[name] for name in ("flags", "path", "path_sequence", "context")}
    rest = {name: value for name, value in fields.items() if name not in prefix}
    packet = SRD(**prefix) / SRDData(**rest) / payload
    header = bytearray(HEADER_BYTES)
    write_headers(
        Burst("", count=1, payload_offset=0, payload_bytes=len(payload), segment_bytes=len(payload), **fields),
        out=memoryview(header),
    )
    assert bytes(packet) == bytes(header) + payload
    datagram = GroDatagram(memoryview(bytes(packet)), 1, 0, len(payload), len(payload), "a:1", 0.0)
    (burst,) = received_bursts_untrusted(datagram)
    assert {name: getattr(burst, name) for name in fields} == fields
    read = SRD(bytes(packet))
    assert {name: getattr(read if name in prefix else read[SRDData], name) for name in fields} == fields
    assert bytes(read[SRDData].payload) == payload


@given(st.binary(min_size=PREFIX_BYTES, max_size=400), st.sampled_from([*PacketType, None]))
@example(bytes(PREFIX_BYTES), None)
def test_layers__any_bytes(data: bytes, kind: PacketType | None) -> None:
    """Nothing raises, and nothing is lost."""
    if kind is not None:
        data = bytes([VERSION, kind]) + data[2:]
    packet = SRD(data)
    assert len(packet.summary()) + len(packet.show(dump=True) or "")
    assert bytes(packet) == data


def test_lengths__are_sent_as_given() -> None:
    """Also what contradicts the content: that is what crafted packets are for."""
    packet = SRD() / SRDAck(bitmap_length=9, bitmap=b"\2", report_count=200)
    assert bytes(packet)[40:43] == bytes([0, 9, 200])
    hello = SRD() / SRDHello(datagram_bytes=600, padding=b"short")
    assert len(bytes(hello)) == PREFIX_BYTES + 41 + 5


def test_hello__is_padded_to_its_size() -> None:
    packet = SRD() / SRDHello(own_context=1, window_packets=64, datagram_bytes=600, paths=1, cookie=b"abc")
    assert decode_untrusted(bytes(packet)) == Hello(1, 0, 0, 0, 64, 600, b"abc")


def test_udp__is_dissected_at_the_default_port() -> None:
    data = Probe(1, 2, 3, 4, 5).encode()
    assert SRDProbe in IP(bytes(IP() / UDP(sport=4000, dport=DEFAULT_PORT) / data))
    assert SRDProbe in IP(bytes(IP() / UDP(sport=DEFAULT_PORT, dport=4000) / data))
    assert SRDProbe not in IP(bytes(IP() / UDP(sport=4000, dport=4001) / data))
    assert (IP() / UDP() / SRD())[UDP].dport == DEFAULT_PORT
    cut = IP(bytes(IP() / UDP(sport=4000, dport=DEFAULT_PORT) / data[:20]))
    assert bytes(cut[SRD][Raw]) == data[16:20]


@pytest.mark.parametrize(
    ("packet", "wanted"),
    [
        (SRD(flags=Opcode.WRITE | IMMEDIATE | KEY_PHASE) / SRDData(), "WRITE|IMMEDIATE|KEY_PHASE"),
        (SRD(flags=ABORTED) / SRDData(), "SEND|ABORTED"),
        (SRD(flags=0x40) / SRDData(), "64"),
        (SRD(flags=KEY_PHASE) / SRDProtected(), "KEY_PHASE"),
        (SRD(flags=3) / SRDProbe(), "3"),
        (SRD() / SRDAck(flags=1), "NOT_READY"),
        (SRD() / SRDAck(flags=2), "2"),
        (SRD() / SRDNack(status=10), "REMOTE_ERROR_RNR"),
        (SRD() / SRDRefuse(status=18, reason=3), "NEEDS_KEYS"),
        (SRD() / SRDProbe(), "PROBE"),
    ],
)
def test_show__names_what_numbers_mean(packet: Any, wanted: str) -> None:
    assert f"= {wanted}\n" in str(SRD(bytes(packet)).show(dump=True))


def test_answers__an_ack_to_the_probe_of_its_receiver() -> None:
    probe = SRD(context=1) / SRDProbe(own_context=2)
    assert SRD(Ack(2, 0, 0, 0, 0, ()).encode()).answers(probe)
    assert not SRD(Nack(1, 0, 0).encode()).answers(probe)
    assert not SRD(Nack(0, 0, 0).encode()).answers(SRD(Nack(0, 0, 0).encode()))


@pytest.mark.parametrize("kind", PacketType, ids=lambda kind: kind.name)
def test_fuzz__makes_every_type(kind: PacketType) -> None:
    random.seed(kind)  # scapy's
    for _ in range(20):
        assert bytes(SRD() / fuzz(layer_of(bytes([VERSION, kind]))()))[1] == kind


def test_import__without_scapy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scapy", None)
    monkeypatch.delitem(sys.modules, "srd.contrib.scapy")
    with pytest.raises(
        ImportError, match=r"^srd.contrib.scapy needs scapy; install it, in the checkout: pip install '\.\[scapy\]'$"
    ):
        importlib.import_module("srd.contrib.scapy")
