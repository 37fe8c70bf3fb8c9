"""Trace files against qlog's published schema (tests/data/qlog)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from srd.qlog.schema import KINDS, LAYOUTS, kind_of
from tests.srd.qlog.cddl import Schema
from tests.srd.qlog.files import records, write

DATA = Path(__file__).resolve().parents[2] / "data" / "qlog"
SCHEMA = Schema(DATA / "main-schema.cddl", DATA / "quic-events.cddl")
EVENTS = {
    "connectivity:connection_started": "ConnectivityConnectionStarted",
    "connectivity:connection_closed": "ConnectivityConnectionClosed",
    "transport:packet_sent": "TransportPacketSent",
    "transport:packet_received": "TransportPacketReceived",
    "recovery:metrics_updated": "RecoveryMetricsUpdated",
    "recovery:packet_lost": "RecoveryPacketLost",
}
FRAMES = {"stream": "StreamFrame", "ack": "AckFrame", "ping": "PingFrame"}
SCHEMA.rules["$QuicFrame"] = [each for frame in FRAMES.values() for each in SCHEMA.rules[frame]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    return [records(path) for path in write(tmp_path_factory.mktemp("files"))]


def errors_of(event: dict[str, Any]) -> list[str]:
    """What is wrong with an event. Custom fields of the data (main schema, section 4.3) are in one, `srd`."""
    wrong = SCHEMA.check(event, "Event")
    if event["name"].startswith("srd:"):
        return wrong
    return wrong + SCHEMA.check(
        {key: value for key, value in event["data"].items() if key != "srd"}, EVENTS[event["name"]]
    )


def test_files__are_qlog(files: list[list[dict[str, Any]]]) -> None:
    for header, *events in files:
        assert SCHEMA.check(header, "QlogFileSeq") == []
        assert events
        assert [wrong for event in events for wrong in errors_of(event)] == []


def test_files__have_each_standard_event(files: list[list[dict[str, Any]]]) -> None:
    found = {event["name"] for _, *events in files for event in events}
    assert {*EVENTS} <= found
    assert {name for name, _ in LAYOUTS.values() if not name.startswith("srd:")} == {*EVENTS}
    kinds = {kind_of(event["name"], event["data"]) for _, *events in files for event in events}
    assert None not in kinds
    assert len(kinds) >= len(KINDS) - 3, "all but those of writes, of aborted messages, and of sockets"


def test_files__names_are_in_lower_case(files: list[list[dict[str, Any]]]) -> None:
    def check(value: object) -> None:
        for key, inner in value.items() if isinstance(value, dict) else ():
            assert key == key.lower()
            check(inner)
        for inner in value if isinstance(value, list) else ():
            check(inner)

    for each in files:
        check(each)
        assert all(len(json.dumps(each[0])[:256].split(part)) == 2 for part in ('"qlog_version"', '"qlog_format"'))
