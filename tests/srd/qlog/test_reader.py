"""srd.qlog.reader: any file gives events or one TraceError."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.trace import BurstSent, MessageReceived
from srd.qlog import reader as module
from srd.qlog.errors import TraceError
from srd.qlog.reader import Record, TraceReader
from srd.qlog.schema import EVENT_SCHEMA, FIELDS, KINDS, LAYOUTS, MAX_RECORD_BYTES, QLOG_FORMAT, QLOG_VERSION
from srd.qlog.values import Value

HEADER: dict[str, Any] = {
    "qlog_version": QLOG_VERSION,
    "qlog_format": QLOG_FORMAT,
    "title": "t",
    "trace": {"common_fields": {"event_schemas": [EVENT_SCHEMA]}, "vantage_point": {"type": "client"}},
}
LANDED: dict[str, Any] = {
    "time": 1500,
    "name": "srd:message_received",
    "group_id": "4",
    "data": {"message": 3, "length_bytes": 9},
}
READ = Record(1.5, 4, MessageReceived(3, 9))
BURST: dict[str, Any] = {
    "time": 0,
    "name": "transport:packet_sent",
    "group_id": "0",
    "data": {
        "header": {"packet_type": "1RTT", "packet_number": 9 << 7 | 3},
        "raw": {"length": 1056},
        "frames": [{"frame_type": "stream", "stream_id": 5, "offset": 7, "length": 1000}],
        "srd": {
            "event": "burst_sent", "psn": 11, "packets": 1, "kind": "send", "retransmission": False,
            "inflight_bytes": 13,
        },
    },
}  # fmt: skip


def framed(*records: object) -> bytes:
    return b"".join(b"\x1e" + json.dumps(record).encode() + b"\n" for record in records)


def read(data: bytes) -> tuple[list[Record], TraceReader]:
    reader = TraceReader(io.BytesIO(data), name="f")
    return list(reader.read_untrusted()), reader


def refused(data: bytes) -> str:
    with pytest.raises(TraceError) as caught:
        read(data)
    assert str(caught.value).startswith("f: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_read__header_and_events() -> None:
    records, reader = read(framed(HEADER, LANDED, LANDED))
    assert records == [READ, READ]
    assert (reader.title, reader.vantage_point, reader.cut_off) == ("t", "client", False)


def test_read__a_header_with_little_in_it() -> None:
    _, reader = read(
        framed({"qlog_format": QLOG_FORMAT, "title": 5, "trace": {"common_fields": {"event_schemas": [EVENT_SCHEMA]}}})
    )
    assert (reader.title, reader.vantage_point) == ("", "unknown")


def test_read__unknown_events_and_fields_are_skipped() -> None:
    later = {**LANDED, "new": 1, "data": {**LANDED["data"], "more": []}}
    strange: list[dict[str, object]] = [
        {"name": name, "data": {}} for name in ("srd:of_tomorrow", "quic:packet_sent", "transport:packet_sent")
    ]
    assert read(framed(HEADER, *strange, later))[0] == [READ]


def test_read__an_event_that_is_quics_too() -> None:
    event = BurstSent(3, 9, 11, 1, 1000, 5, 7, "send", retransmission=False, inflight_bytes=13)
    assert read(framed(HEADER, BURST))[0] == [Record(0.0, 0, event)]


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        (("header",), None, "header.packet_number is not an integer: None"),
        (("header",), {"packet_number": -1}, "header.packet_number is negative: -1"),
        (("header",), {"packet_number": 1.5}, "header.packet_number is not an integer: 1.5"),
        (("frames",), [], "frames.0.stream_id is not an integer: None"),
        (("frames",), {"0": {}}, "frames.0.stream_id is not an integer: None"),
        (("srd", "kind"), 5, "srd.kind is not a string: 5"),
        (("srd", "retransmission"), 1, "srd.retransmission is not a boolean: 1"),
    ],
)
def test_read__a_bad_event_that_is_quics_too_bad_flow(place: tuple[str, ...], value: object, expected: str) -> None:
    record = json.loads(json.dumps(BURST))
    inner = record["data"]
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    assert f"(transport:packet_sent) {expected}" in refused(framed(HEADER, record))


@pytest.mark.parametrize("frame", [None, {"acked_ranges": 5}, {"acked_ranges": [5]}, {"acked_ranges": [[1, 2]]}])
def test_read__a_bad_ack_bad_flow(frame: object) -> None:
    data = {"frames": [frame], "srd": {"event": "ack_sent", "cumulative": 0, "reports": 0, "credit_bytes": 0}}
    record = {**BURST, "data": data}
    assert "frames.0 is no frame that acknowledges bursts" in refused(framed(HEADER, record))


def test_read__separators_in_a_row() -> None:
    assert read(b"\x1e\x1e\n" + framed(HEADER) + b"\x1e" + framed(LANDED) + b"\x1e")[0] == [READ]


def test_read__a_file_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for size_bytes in (1, 2, 3, 7, 100):
        monkeypatch.setattr(module, "READ_BYTES", size_bytes)
        assert read(framed(HEADER, LANDED, LANDED))[0] == [READ, READ]


# -- cut off --------------------------------------------------------------------------------------------------------


def test_read__cut_off_anywhere_behind_the_header() -> None:
    whole = framed(HEADER, LANDED, LANDED)
    first, second = (len(framed(HEADER)), len(framed(HEADER, LANDED)))
    for end in range(first, len(whole)):
        records, reader = read(whole[:end])
        complete = (end >= second - 1) + (end >= len(whole) - 1)  # an object is whole without its line feed
        assert records == [READ] * complete, end
        assert reader.cut_off == (end not in (first, first + 1, second - 1, second, second + 1, len(whole) - 1)), end


def test_read__cut_off_within_the_header_bad_flow() -> None:
    whole = framed(HEADER)
    for end in range(len(whole) - 1):
        assert "has no header" in refused(whole[:end]), end


def test_read__only_the_last_record_may_be_cut_off_bad_flow() -> None:
    cut = framed(LANDED)[:-10]
    assert "record 2 is not JSON" in refused(framed(HEADER) + cut + framed(LANDED))
    assert "record 2 is not JSON" in refused(framed(HEADER) + cut + b"\n")


# -- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"{}", b"hello\x1e{}\n", b" \x1e{}\n", bytes(100), b"x" * 3_000_000],
    ids=["json", "text", "space", "zeros", "long"],
)
def test_read__no_sequence_at_all_bad_flow(data: bytes) -> None:
    refused(data)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({}, "is no header of a qlog JSON-SEQ trace"),
        ({**HEADER, "qlog_format": "JSON"}, "is no header"),
        ({**HEADER, "trace": []}, "is no header"),
        ({**HEADER, "trace": {}}, "names other events"),
        (
            {**HEADER, "trace": {"common_fields": {"event_schemas": ["urn:open-srd:qlog:events:srd-1"]}}},
            "another program's",
        ),
        ([], "is not a JSON object"),
        (5, "is not a JSON object"),
    ],
)
def test_read__another_header_bad_flow(header: object, expected: str) -> None:
    assert expected in refused(framed(header, LANDED))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"time": None}, "has no time"),
        ({"time": "5"}, "has no time"),
        ({"time": True}, "has no time"),
        ({"time": 1 << 70}, "has no time"),
        ({"name": None}, "without a name"),
        ({"name": 5}, "without a name"),
        ({"group_id": 4}, "group_id"),
        ({"group_id": ""}, "group_id"),
        ({"group_id": "-1"}, "group_id"),
        ({"group_id": "\u0667"}, "group_id"),
        ({"group_id": "9" * 5000}, "group_id"),
        ({"data": None}, "has no data"),
        ({"data": {"message": 3}}, "(srd:message_received) length_bytes is not an integer: None"),
        ({"data": {"message": 3.5, "length_bytes": 9}}, "message is not an integer: 3.5"),
        ({"data": {"message": True, "length_bytes": 9}}, "message is not an integer: True"),
        ({"data": {"message": "x" * 999, "length_bytes": 9}}, "message is not an integer: 'xxx"),
    ],
)
def test_read__a_bad_event_bad_flow(change: dict[str, object], expected: str) -> None:
    error = refused(framed(HEADER, LANDED, {**LANDED, **change}))
    assert expected in error
    assert "record 3 " in error
    assert len(error) < 200


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000])
def test_read__numbers_that_are_none_bad_flow(text: str) -> None:
    refused(framed(HEADER, LANDED).replace(b"1500", text.encode()))


@pytest.mark.parametrize("text", [b"[" * 60_000, b'{"a":' * 10_000, b"\xff\xfe", b'"\\'])
def test_read__no_json_bad_flow(text: bytes) -> None:
    assert "record 2 " in refused(framed(HEADER) + b"\x1e" + text + b"\n" + framed(LANDED))


def test_read__a_record_without_end_bad_flow() -> None:
    for times in (1, 40):  # within one piece of the file, and over several
        long = b'\x1e{"a":"' + b"x" * (MAX_RECORD_BYTES * times)
        expected = f"record 2 is longer than {MAX_RECORD_BYTES} bytes"
        assert expected in refused(framed(HEADER) + long)
        assert expected in refused(framed(HEADER) + long + b'"}\n' + framed(LANDED))


def test_read__a_stream_that_fails_bad_flow() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            del size
            raise OSError(5, "Input/output error")

    with pytest.raises(TraceError, match="f: cannot be read: Input/output error"):
        list(TraceReader(Broken(), name="f").read_untrusted())


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: framed(HEADER) + b"\x1e" + data))
def test_read__any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(TraceError):  # no other error
        read(data)


def spoilt(template: object, data: st.DataObject) -> object:
    """Return a record's data with any JSON for its values, and sometimes for what contains them."""
    if data.draw(st.integers(0, 20)) == 0:
        return data.draw(JSON)
    if isinstance(template, Mapping):
        return {key: spoilt(inner, data) for key, inner in template.items()}
    if isinstance(template, list):
        return [spoilt(inner, data) for inner in template]
    return data.draw(JSON | st.integers(0, 1 << 40) | st.just("x")) if isinstance(template, Value) else template


@given(st.data())
def test_read__any_values_are_read_with_their_types_or_refused(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    name, template = LAYOUTS[kind]
    try:
        records, _ = read(framed(HEADER, {"time": 1, "name": name, "group_id": "0", "data": spoilt(template, data)}))
    except TraceError:
        return
    for record in records:
        for field, wanted in FIELDS[kind].items():
            value = getattr(record.event, field)
            plain = tuple if wanted == tuple[int, ...] else wanted
            assert isinstance(value, plain) or (wanted is float and isinstance(value, int))
