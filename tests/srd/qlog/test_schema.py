"""srd.qlog.schema: names and fields, and docs/trace.md against them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from srd.proto.trace import BurstSent, PathStateChanged
from srd.qlog.reader import TraceReader
from srd.qlog.schema import (
    EVENT_SCHEMA,
    FIELDS,
    KINDS,
    LAYOUTS,
    QLOG_FORMAT,
    QLOG_VERSION,
    kind_of,
    snake_case,
)
from srd.qlog.writer import TraceWriter

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "trace.md").read_text()


def test_kind_of__other_programs_and_newer_writers() -> None:
    burst = LAYOUTS[BurstSent][1]
    others: list[tuple[str, Any]] = [
        ("transport:packet_sent", {}),
        ("transport:packet_sent", {"srd": 5}),
        ("transport:packet_sent", {"srd": {"event": "of_tomorrow"}}),
        ("transport:packet_sent", {"srd": {"event": []}}),
        ("transport:packet_received", burst),
        ("srd:of_tomorrow", {}),
    ]
    for name, data in others:
        assert kind_of(name, data) is None, (name, data)


def type_name(wanted: object) -> str:
    return wanted.__name__ if isinstance(wanted, type) else "ints"


def test_document__has_every_event_and_field_with_its_type() -> None:
    sections = re.findall(r"^### (\w+)$(.*?)(?=^#|^Of the|\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    documented = {name: re.findall(r"^\| `(\w+)` \| (\w+) \|", text, re.MULTILINE) for name, text in sections}
    assert documented == {
        snake_case(kind): [(name, type_name(wanted)) for name, wanted in FIELDS[kind].items()] for kind in KINDS
    }
    assert len(sections) == len(documented), "an event is described twice"


def test_document__says_as_what_each_event_is_logged() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `([\w:]+)` \|", DOCUMENT, re.MULTILINE))
    assert rows == {snake_case(kind): name for kind, (name, _) in LAYOUTS.items() if not name.startswith("srd:")}


def test_document__names_the_schemas() -> None:
    assert EVENT_SCHEMA in DOCUMENT
    assert f'"qlog_version":"{QLOG_VERSION}","qlog_format":"{QLOG_FORMAT}"' in DOCUMENT


def test_document__examples_are_events(tmp_path: Path) -> None:
    lines = re.findall(r'^\{"time".*\}$', DOCUMENT, re.MULTILINE)
    assert len(lines) == 2
    path = tmp_path / "a.sqlog"
    TraceWriter(path, now=0.0).close()
    with path.open("ab") as file:
        file.writelines(b"\x1e%b\n" % line.encode() for line in lines)
    with path.open("rb") as stream:
        records = list(TraceReader(stream, name="a").read_untrusted())
    assert [type(record.event) for record in records] == [BurstSent, PathStateChanged]
    with TraceWriter(tmp_path / "b.sqlog", now=0.0) as trace:
        for record in records:
            trace.record(record.event, peer=record.peer, now=record.at_s)
    assert (tmp_path / "b.sqlog").read_text().split("\x1e")[2:] == [f"{line}\n" for line in lines]
