"""srd.qlog.writer: the bytes of the file, when they are written, and write errors."""

from __future__ import annotations

import json
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.trace import ProbeSent
from srd.qlog.errors import TraceError
from srd.qlog.reader import Record, TraceReader
from srd.qlog.schema import FIELDS, KINDS
from srd.qlog.writer import BUFFER_BYTES, FLUSH_INTERVAL_S, TraceWriter

PROBE = ProbeSent(path=3, path_sequence=9)


def texts(path: Path) -> list[dict[str, Any]]:
    """The records, with the framing checked byte by byte."""
    data = path.read_bytes()
    assert data.startswith(b"\x1e")
    records = data[1:].split(b"\x1e")
    assert all(record.endswith(b"}\n") and record.count(b"\n") == 1 for record in records)
    return [json.loads(record) for record in records]


def test_writer__header_first(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlog"
    noon = datetime(2026, 1, 2, 13, 0, tzinfo=timezone(timedelta(hours=1)))
    TraceWriter(path, now=5.0, title="a test", vantage_point="server", wall_clock=noon).close()
    (header,) = texts(path)
    assert (header["qlog_version"], header["qlog_format"]) == ("0.3", "JSON-SEQ")
    assert header["title"] == "a test"
    trace = header["trace"]
    assert trace["vantage_point"]["type"] == "server"
    assert trace["vantage_point"]["name"].startswith("open-srd ")
    assert trace["common_fields"] == {
        "protocol_type": ["QUIC", "SRD"],
        "time_format": "relative",
        "reference_time": noon.timestamp() * 1e3,
        "event_schemas": ["urn:open-srd:qlog:events:srd-2"],
    }


@given(st.data())
def test_writer__any_event_is_read_back(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    anything: dict[Any, st.SearchStrategy[object]] = {
        int: st.integers(0, (1 << 63) - 1),
        float: st.integers(0, 1 << 40).map(lambda tenths: tenths / 10),
        str: st.text(max_size=5),
        bool: st.booleans(),
        tuple[int, ...]: st.lists(st.integers(0, 1 << 39), max_size=3).map(tuple),
    }
    narrow: dict[str, st.SearchStrategy[object]] = {
        "path": st.integers(0, 127),
        "path_sequence": st.integers(0, (1 << 32) - 1),
        "trigger": st.sampled_from(["reordering", "timeout"]),
    }
    values: dict[str, Any] = {
        name: data.draw(narrow.get(name, anything[wanted])) for name, wanted in FIELDS[kind].items()
    }
    event = kind(**values)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.sqlog"
        with TraceWriter(path, now=5.0) as trace:
            trace.record(event, peer=3, now=7.0)
        with path.open("rb") as stream:
            assert list(TraceReader(stream, name="a").read_untrusted()) == [Record(2.0, 3, event)]


# -- when it is written ---------------------------------------------------------------------------------------------


def test_writer__readable_after_a_second_and_not_a_system_call_an_event(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlog"
    with TraceWriter(path, now=10.0) as trace:
        assert len(texts(path)) == 1, "the header is there at once"
        trace.record(PROBE, peer=0, now=10.0 + 0.9 * FLUSH_INTERVAL_S)
        assert len(texts(path)) == 1
        trace.record(PROBE, peer=0, now=10.0 + FLUSH_INTERVAL_S)
        assert len(texts(path)) == 3
        trace.record(PROBE, peer=0, now=10.0 + 1.5 * FLUSH_INTERVAL_S)
        assert len(texts(path)) == 3
    assert len(texts(path)) == 4


def test_writer__unwritten_bytes_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlog"
    with TraceWriter(path, now=10.0) as trace:
        for number in range(5000):
            trace.record(PROBE, peer=0, now=10.0)
            assert trace._file.tell() - path.stat().st_size <= BUFFER_BYTES, number
    assert len(texts(path)) == 5001


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gone/a", "No such file or directory"),
        ("", "Is a directory"),
        ("x" * 300, "File name too long"),
        ("\0", "null"),
    ],
)
def test_writer__an_invalid_path_bad_flow(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(TraceError, match=reason) as caught:
        TraceWriter(tmp_path / name, now=0.0)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("; choose another place")


def test_writer__a_full_device_bad_flow() -> None:
    with pytest.raises(TraceError, match=r"/dev/full: the trace cannot be written \(No space left on device\)"):
        TraceWriter(Path("/dev/full"), now=0.0)


@contextmanager
def files_limited(size_bytes: int) -> Iterator[None]:
    """Limit file sizes to `size_bytes`, which acts as a full disk (Python ignores SIGXFSZ)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_writer__a_full_disk_ends_only_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlog"
    with files_limited(100_000):
        trace = TraceWriter(path, now=0.0)
        for _ in range(5000):
            trace.record(PROBE, peer=0, now=0.0)  # raises nothing
        with pytest.raises(TraceError, match=r"the trace cannot be written \(File too large\)"):
            trace.close()
    assert path.stat().st_size == 100_000
    with path.open("rb") as stream:
        reader = TraceReader(stream, name="a")
        assert len(list(reader.read_untrusted())) > 400
    assert reader.cut_off


def test_writer__an_error_of_the_block_takes_precedence(tmp_path: Path) -> None:
    def overflow(error: type[Exception] | None) -> None:
        with files_limited(1000), TraceWriter(tmp_path / "a", now=0.0) as trace:
            for _ in range(100):
                trace.record(PROBE, peer=0, now=0.0)
            if error is not None:
                raise error

    with pytest.raises(ZeroDivisionError):
        overflow(ZeroDivisionError)
    with pytest.raises(TraceError):
        overflow(None)


def test_writer__replaces_a_trace_and_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlog"
    path.touch()
    for title in ("first", "second"):
        TraceWriter(path, now=0.0, title=title).close()
        (header,) = texts(path)
        assert header["title"] == title


def test_writer__what_is_no_trace_is_not_replaced_bad_flow(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"the user's")
    with pytest.raises(TraceError, match=r"a.txt: the trace cannot be written \(it exists, and is no trace\)"):
        TraceWriter(path, now=0.0)
    assert path.read_bytes() == b"the user's"
