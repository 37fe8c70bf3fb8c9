"""Data packets' layout, and PROTOCOL.md's tables against the encoded bytes."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import srd.proto
from srd.proto.paths import path
from srd.proto.wire import data as layout
from srd.proto.wire.data import (
    HEADER,
    HEADER_BYTES,
    VERSION,
    Burst,
    GroDatagram,
    PacketType,
    expand,
    received_bursts_untrusted,
    write_headers,
)

SPECIFICATION, _, _ = (Path(layout.__file__).parents[2] / "PROTOCOL.md").read_text().partition("## 17. Streams")
"""Of the core; streams stand on it (tests/srd/streams/test_wire.py)."""
U8, U32, U64 = st.integers(0, 2**8 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


def burst(**changes: Any) -> Burst:
    fields = {
        "path": 5, "path_sequence": 1000, "context": 0x1122334455667788, "psn": 70, "count": 3, "sent_us": 123456,
        "message": 9, "length": 2500, "immediate": 0xABCD, "offset": 0, "key": 0, "payload_offset": 4096,
        "payload_bytes": 2500, "segment_bytes": 1000,
    }  # fmt: skip
    return Burst("b:0", **(fields | changes))


def headers_of(*bursts: Burst) -> npt.NDArray[np.void]:
    headers = np.zeros(sum(one.count for one in bursts), HEADER)
    room = headers.view(np.uint8).data
    at = 0
    for one in bursts:
        write_headers(one, out=room[at:])
        at += one.count * HEADER_BYTES
    return headers


def arrival(*bursts: Burst, payload_bytes: int | None = None) -> GroDatagram:
    headers = headers_of(*bursts)
    return GroDatagram(
        headers=headers.view(np.uint8).data,
        count=len(headers),
        payload_offset=1 << 20,
        payload_bytes=sum(b.payload_bytes for b in bursts) if payload_bytes is None else payload_bytes,
        segment_bytes=bursts[0].segment_bytes,
        address="a:5",
        received_at=10.0,
    )


@pytest.mark.parametrize("marked", [False, True])
def test_received_bursts_untrusted__every_burst_of_a_train_has_its_mark(*, marked: bool) -> None:
    one = arrival(burst(), burst(psn=500, path_sequence=2000))
    one.ecn_ce = marked
    assert [got.ecn_ce for got in received_bursts_untrusted(one)] == [marked, marked]


# -- headers --------------------------------------------------------------------------------------------------------


def test_write_headers__bytes_on_the_wire() -> None:
    """The only test without the dtype: big endian, byte by byte."""
    data = headers_of(burst(count=1, offset=0x0102030405060708, key=0x1112131415161718)).tobytes()
    assert data.hex(" ", 8) == (
        "06010005000003e8 1122334455667788 0000000000000046 0001e24000000009 "
        "000009c40000abcd 0102030405060708 1112131415161718"
    )  # fmt: skip


def test_write_headers__path_sequence_is_truncated() -> None:
    assert headers_of(burst(count=2, path_sequence=(7 << 32) + 41))["path_sequence"].tolist() == [41, 42]


def test_write_headers__leaves_the_rest_alone() -> None:
    headers = np.zeros(5, HEADER)
    write_headers(burst(count=2), out=headers.view(np.uint8).data)
    assert not headers[2:].tobytes().strip(b"\0")


# -- received bursts ------------------------------------------------------------------------------------------------


def test_received_bursts_untrusted__a_gap_splits() -> None:
    """A packet of the burst was lost: what follows it is another got."""
    whole = arrival(burst(count=4, payload_bytes=4000, length=4000))
    headers = bytes(whole.headers)
    headers = headers[: 2 * HEADER_BYTES] + headers[3 * HEADER_BYTES :]
    cut = GroDatagram(memoryview(headers), 3, whole.payload_offset, 3000, 1000, whole.address, whole.received_at)
    found = [(got.psn, got.count, got.offset, got.payload_offset - (1 << 20)) for got in received_bursts_untrusted(cut)]
    assert found == [(70, 2, 0, 0), (73, 1, 3000, 2000)]


@pytest.mark.parametrize("byte", [0, 1], ids=["version", "type"])
def test_received_bursts_untrusted__another_version_or_type_is_dropped(byte: int) -> None:
    headers = headers_of(burst(count=3))
    raw = bytearray(headers.tobytes())
    raw[HEADER_BYTES + byte] = 77
    received = received_bursts_untrusted(GroDatagram(memoryview(raw), 3, 0, 2500, 1000, "a:5", 10.0))
    assert [(got.psn, got.payload_offset, got.payload_bytes) for got in received] == [(70, 0, 1000), (72, 2000, 500)]


def test_received_bursts_untrusted__zero_length_messages() -> None:
    train = arrival(
        *(burst(count=1, psn=70 + i, message=i, length=0, payload_bytes=0, segment_bytes=0) for i in range(3))
    )
    found = [(got.message, got.count, got.payload_bytes) for got in received_bursts_untrusted(train)]
    assert found == [(0, 1, 0), (1, 1, 0), (2, 1, 0)]


SERIES = st.binary(min_size=HEADER_BYTES, max_size=8 * HEADER_BYTES)


def train(data: bytes, *, segment: int, last: int) -> GroDatagram:
    """As many headers as `data` has, each with a segment of payload but the last."""
    count = len(data) // HEADER_BYTES
    return GroDatagram(memoryview(data), count, 500, (count - 1) * segment + min(last, segment), segment, "x", 10.0)


@given(data=SERIES, segment=st.integers(0, 9000), last=st.integers(0, 9000))
def test_received_bursts_untrusted__never_raises(data: bytes, segment: int, last: int) -> None:
    came = train(data, segment=segment, last=last)
    assert sum(got.count for got in received_bursts_untrusted(came)) <= came.count


@given(data=SERIES, segment=st.integers(0, 9000), last=st.integers(0, 9000))
def test_received_bursts_untrusted__arbitrary_data_packets_share_out_the_payload(
    data: bytes, segment: int, last: int
) -> None:
    raw = bytearray(data)
    for at in range(0, len(raw), HEADER_BYTES):
        raw[at : at + 3] = bytes([VERSION, PacketType.DATA, 0])
    came = train(bytes(raw), segment=segment, last=last)
    at = came.payload_offset
    for got in received_bursts_untrusted(came):
        assert got.count >= 1
        assert got.payload_offset == at
        assert 0 <= got.payload_bytes <= got.count * segment
        at += got.payload_bytes
    assert at == came.payload_offset + came.payload_bytes


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5), segment=st.integers(1, 9000), start=U32)
def test_received_bursts_untrusted__inverts_write_headers(sizes: list[int], segment: int, start: int) -> None:
    bursts, psn = [], start
    for message, count in zip(range(0, 99, 2), sizes, strict=False):  # messages without consecutive numbers
        size = count * segment
        bursts.append(
            burst(count=count, psn=psn, path_sequence=start % 2**31 + psn - start, message=message, length=size,
                  payload_bytes=size, segment_bytes=segment)
        )  # fmt: skip
        psn += count
    received = received_bursts_untrusted(arrival(*bursts))
    assert [(r.psn, r.count, r.message, r.length, r.offset, r.payload_bytes) for r in received] == [
        (b.psn, b.count, b.message, b.length, b.offset, b.payload_bytes) for b in bursts
    ]


# -- sequences ------------------------------------------------------------------------------------------------------


@given(value=st.integers(0, 2**64 - 1), distance=st.integers(-(2**31) + 1, 2**31 - 1))
def test_expand__inverts_truncation_of_near_values(value: int, distance: int) -> None:
    near = max(value + distance, 0)
    assert expand(value & 0xFFFFFFFF, near=near) == value


@pytest.mark.parametrize(
    ("low", "near", "value"),
    [
        (0, 0, 0),
        (5, 0, 5),
        (0xFFFFFFFF, 0, 0xFFFFFFFF),  # none is below zero
        (0xFFFFFFFF, 1 << 32, 0xFFFFFFFF),
        (1, 0xFFFFFFFF, (1 << 32) + 1),
    ],
)
def test_expand__edges(low: int, near: int, value: int) -> None:
    assert expand(low, near=near) == value


# -- PROTOCOL.md ----------------------------------------------------------------------------------------------------


def table(title: str) -> list[tuple[int, int | None, str]]:
    """Rows (offset, bytes, field) of the table under a heading; None bytes: to the end of the packet or list."""
    section = re.search(rf"^### .*{re.escape(title)}$(.*?)(?=^#|\Z)", SPECIFICATION, re.MULTILINE | re.DOTALL)
    assert section, f"PROTOCOL.md has no section {title}"
    rows = re.findall(r"^\| (\d+) +\| (\d+|\*) +\| `(\w+)`", section[1], re.MULTILINE)
    assert rows, f"PROTOCOL.md has no table for {title}"
    return [(int(at), None if size == "*" else int(size), name) for at, size, name in rows]


def test_protocol_md__packet_types() -> None:
    named = re.findall(r"^### ([A-Z_]+) \((\d+)\)$", SPECIFICATION, re.MULTILINE)
    assert {(name, int(value)) for name, value in named} == {(kind.name, kind.value) for kind in PacketType}


CONSTANTS_IN = [
    importlib.import_module(found.name) for found in pkgutil.walk_packages(srd.proto.__path__, "srd.proto.")
]


def test_protocol_md__constants() -> None:
    named = re.findall(r"^\| `([A-Z_]+)` \| ([0-9.]+) \|", SPECIFICATION, re.MULTILINE)
    assert len(named) > 10
    for name, value in named:
        modules = [module for module in CONSTANTS_IN if hasattr(module, name)]
        assert modules, f"{name} is in no module"
        assert {getattr(module, name) for module in modules} == {float(value)}, name


def test_protocol_md__opcodes() -> None:
    rows = re.findall(r"^\| (\d) \| ([A-Z]+) \| ", SPECIFICATION, re.MULTILINE)
    assert {(int(value), name) for value, name in rows} == {(kind.value, kind.name) for kind in layout.Opcode}
    (bits,) = re.findall(r"`flags` \| opcode \(bits 0 and 1\), IMMEDIATE \((\d)\), ABORTED \((\d)\)", SPECIFICATION)
    assert bits == (str(layout.IMMEDIATE), str(layout.ABORTED))
    assert layout.OPCODE_BITS == 0b11
    assert re.findall(r"NOT_READY \((\d)\)", SPECIFICATION) == [str(layout.NOT_READY)]


def test_protocol_md__path_states() -> None:
    rows = re.findall(r"^\| ([A-Z]+) \| ([A-Z]+) \| ([A-Z]+) \| ([A-Z]+) \| ([A-Z]+) \|$", SPECIFICATION, re.MULTILINE)
    (names,) = re.findall(r"^\| \| ((?:[A-Z]+ \| ){3}[A-Z]+) \|$", SPECIFICATION, re.MULTILINE)
    columns = {name: index for index, name in enumerate(names.split(" | "), start=1)}
    assert {
        (path.PathState[row[0]], path.PathEvent[name]): path.PathState[row[column]]
        for row in rows
        for name, column in columns.items()
    } == path.TRANSITIONS
