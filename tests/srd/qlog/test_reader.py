"""srd.qlog.reader: any file gives events or one TraceError."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.trace import MessageReceived, ProbeSent
from srd.qlog import reader as module
from srd.qlog.errors import TraceError
from srd.qlog.reader import Record, TraceReader
from srd.qlog.schema import EVENT_SCHEMA, FIELDS, FILE_SCHEMA, KINDS, MAX_RECORD_BYTES, NAMES

HEADER: dict[str, Any] = {
    "file_schema": FILE_SCHEMA,
    "title": "t",
    "trace": {"event_schemas": [EVENT_SCHEMA], "vantage_point": {"type": "client"}},
}
PROBE: dict[str, Any] = {
    "time": 1500,
    "name": "srd:probe_sent",
    "group_id": "4",
    "data": {"path": 3, "path_sequence": 9},
}
READ = Record(1.5, 4, ProbeSent(3, 9))


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
    records, reader = read(framed(HEADER, PROBE, PROBE))
    assert records == [READ, READ]
    assert (reader.title, reader.vantage_point, reader.cut_off) == ("t", "client", False)


def test_read__a_header_alone() -> None:
    assert read(framed(HEADER))[0] == []


def test_read__a_header_with_little_in_it() -> None:
    _, reader = read(framed({"file_schema": FILE_SCHEMA, "title": 5, "trace": {"event_schemas": [EVENT_SCHEMA]}}))
    assert (reader.title, reader.vantage_point) == ("", "unknown")


def test_read__unknown_events_and_fields_are_skipped() -> None:
    later = {**PROBE, "new": 1, "data": {**PROBE["data"], "more": []}}
    assert read(framed(HEADER, {"name": "srd:of_tomorrow"}, {"name": "quic:packet_sent", "time": 1}, later))[0] == [
        READ
    ]


def test_read__separators_in_a_row() -> None:
    assert read(b"\x1e\x1e\n" + framed(HEADER) + b"\x1e" + framed(PROBE) + b"\x1e")[0] == [READ]


def test_read__a_file_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for size_bytes in (1, 2, 3, 7, 100):
        monkeypatch.setattr(module, "READ_BYTES", size_bytes)
        assert read(framed(HEADER, PROBE, PROBE))[0] == [READ, READ]


# -- cut off --------------------------------------------------------------------------------------------------------


def test_read__cut_off_anywhere_behind_the_header() -> None:
    whole = framed(HEADER, PROBE, PROBE)
    first, second = (len(framed(HEADER)), len(framed(HEADER, PROBE)))
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
    cut = framed(PROBE)[:-10]
    assert "record 2 is not JSON" in refused(framed(HEADER) + cut + framed(PROBE))
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
        ({**HEADER, "file_schema": "urn:ietf:params:qlog:file:contained"}, "is no header"),
        ({**HEADER, "trace": []}, "is no header"),
        ({**HEADER, "trace": {}}, "names other events"),
        ({**HEADER, "trace": {"event_schemas": ["urn:ietf:params:qlog:events:quic-12"]}}, "another program's"),
        ([], "is not a JSON object"),
        (5, "is not a JSON object"),
    ],
)
def test_read__another_header_bad_flow(header: object, expected: str) -> None:
    assert expected in refused(framed(header, PROBE))


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
        ({"data": {"path": 3}}, "(srd:probe_sent) has no path_sequence of type int: None"),
        ({"data": {"path": 3.5, "path_sequence": 9}}, "has no path of type int: 3.5"),
        ({"data": {"path": True, "path_sequence": 9}}, "has no path of type int: True"),
        ({"data": {"path": "x" * 999, "path_sequence": 9}}, "has no path of type int: 'xxx"),
    ],
)
def test_read__a_bad_event_bad_flow(change: dict[str, object], expected: str) -> None:
    error = refused(framed(HEADER, PROBE, {**PROBE, **change}))
    assert expected in error
    assert "record 3 " in error
    assert len(error) < 200


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000])
def test_read__numbers_that_are_none_bad_flow(text: str) -> None:
    refused(framed(HEADER, PROBE).replace(b"1500", text.encode()))


@pytest.mark.parametrize("text", [b"[" * 60_000, b'{"a":' * 10_000, b"\xff\xfe", b'"\\'])
def test_read__no_json_bad_flow(text: bytes) -> None:
    assert "record 2 " in refused(framed(HEADER) + b"\x1e" + text + b"\n" + framed(PROBE))


def test_read__a_record_without_end_bad_flow() -> None:
    for times in (1, 40):  # within one piece of the file, and over several
        long = b'\x1e{"a":"' + b"x" * (MAX_RECORD_BYTES * times)
        expected = f"record 2 is longer than {MAX_RECORD_BYTES} bytes"
        assert expected in refused(framed(HEADER) + long)
        assert expected in refused(framed(HEADER) + long + b'"}\n' + framed(PROBE))


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


@given(st.data())
def test_read__any_values_are_read_with_their_types_or_refused(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    good: dict[type, st.SearchStrategy[object]] = {
        int: st.integers(0, 1 << 63),
        float: st.floats(0, 1e9),
        str: st.text(max_size=5),
        bool: st.booleans(),
    }
    values = {name: data.draw(good[wanted] | JSON) for name, wanted in FIELDS[kind].items()}
    try:
        ((record,), _) = read(framed(HEADER, {"time": 1, "name": NAMES[kind], "group_id": "0", "data": values}))
    except TraceError:
        return
    for name, wanted in FIELDS[kind].items():
        value = getattr(record.event, name)
        assert isinstance(value, wanted) or (wanted is float and isinstance(value, int))


def test_read__good_values_are_not_refused() -> None:
    values = {"message": 1, "length_bytes": 2}
    event = {"time": 0.5, "name": "srd:message_received", "group_id": "0", "data": values}
    assert read(framed(HEADER, event))[0] == [Record(0.0005, 0, MessageReceived(1, 2))]
