"""What qvis (quiclog/qvis, visualizations/src) demands of a file that it is to open and draw, as its code has it.

It is TypeScript for a browser, so it does not run here; each fact names its source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.srd.qlog.files import records, write

VERSIONS = ("draft-02", "draft-02-RC1", "qlog-03-WIP", "0.3")
"""data/QlogSchema02.ts, Defaults.versionAliases: what data/QlogLoader.ts hands on to QlogLoaderV2, and no other."""
EXTENSIONS = (".qlogseq", ".sqlog")
"""components/filemanager/data/FileLoader.ts, GuesstimateFileTypeFromExtension: what is loaded as JSON-SEQ."""

Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module", params=["sender", "receiver"])
def events(paths: tuple[Path, Path], request: pytest.FixtureRequest) -> Events:
    return records(paths[request.param == "receiver"])[1:]


def of(events: Events, name: str) -> Events:
    """data/Connection.ts, lookup: category and type are the parts of the name at the colon."""
    return [event["data"] for event in events if event["name"] == name]


def test_loads__the_header(paths: tuple[Path, Path]) -> None:
    for path in paths:
        header, *events = records(path)
        assert path.name.endswith(EXTENSIONS)
        # filemanager/newlineconverter/textsequencejsontoqlog.ts, convert
        assert header["qlog_version"] in VERSIONS
        assert header["qlog_format"] == "JSON-SEQ"
        assert "trace" in header
        # data/QlogLoaderV2.ts, fromDraft02: the last event is looked at; events are not in columns
        assert events
        assert "event_fields" not in header["trace"]
        # DirectEventParser.init: times are relative to a number of milliseconds
        common = header["trace"]["common_fields"]
        assert common["time_format"] == "relative"
        assert isinstance(common["reference_time"], float)
        assert header["trace"]["vantage_point"]["type"] in {"client", "server", "network", "unknown"}


def test_loads__without_an_alert(events: Events) -> None:
    """data/QlogLoaderV2.ts, fromDraft02: each group is a connection; it complains of what drafts before 02 had."""
    times = [event["time"] for event in events]
    assert times == sorted(times)
    for event in events:
        assert isinstance(event["group_id"], str)
        assert event["name"].count(":") == 1
        assert "packet_type" not in event["data"]
        assert not {"packet_size", "payload_length"} & {*event["data"].get("header", {})}


def test_congestion_graph__draws_each_burst_and_its_fate(events: Events) -> None:
    """components/congestiongraph/renderer/CongestionGraphD3Renderer.ts, parseQlog."""
    sent: dict[int, dict[str, Any]] = {}
    for data in of(events, "transport:packet_sent"):
        header = data["header"]  # is read of every packet
        if data.get("raw", {}).get("length"):  # otherwise it has no height, and is not drawn
            assert header["packet_number"] not in sent, "a later packet of the same number would hide the first"
            sent[header["packet_number"]] = data
    acked = acked_ranges(of(events, "transport:packet_received"))
    lost = [data["header"]["packet_number"] for data in of(events, "recovery:packet_lost")]
    assert {*acked} | {*lost} == {*sent}, (
        "what was acknowledged or lost must have been drawn as sent, and all has a fate"
    )
    received = {data["header"]["packet_number"] for data in of(events, "transport:packet_received") if "raw" in data}
    assert {*acked_ranges(of(events, "transport:packet_sent"))} == received
    assert sent or received
    if sent:
        assert lost


def acked_ranges(packets: Events) -> list[int]:
    ranges = [
        numbers
        for data in packets
        for frame in data.get("frames", ())
        if frame["frame_type"] == "ack"
        for numbers in frame.get("acked_ranges", ())
    ]
    assert all(len(numbers) in {1, 2} for numbers in ranges)
    return [number for numbers in ranges for number in range(numbers[0], numbers[-1] + 1)]


def test_congestion_graph__draws_window_and_round_trips(paths: tuple[Path, Path]) -> None:
    """The same, metricUpdates: a metric that is 0 or missing is not drawn; round trips are in ms."""
    updates = of(records(paths[0])[1:], "recovery:metrics_updated")
    for name in ("bytes_in_flight", "congestion_window", "min_rtt", "smoothed_rtt", "latest_rtt"):
        assert sum(bool(update.get(name)) for update in updates) > 10, name
    assert min(update["min_rtt"] for update in updates if "min_rtt" in update) == pytest.approx(1.0, abs=0.01)


def test_sequence_diagram__both_ends_name_a_packet_alike(paths: tuple[Path, Path]) -> None:
    """components/sequencediagram: an arrow is drawn where two files have a packet of the same number.

    A burst of which some packets were lost arrives as several; all but the first have numbers that were not sent.
    """
    sent, received = (
        {data["header"]["packet_number"] for data in of(records(path)[1:], name) if "raw" in data}
        for path, name in zip(paths, ("transport:packet_sent", "transport:packet_received"), strict=True)
    )
    assert len(sent & received) > len(sent) / 2


def test_streams__have_what_the_multiplexing_diagram_reads(events: Events) -> None:
    """components/multiplexinggraph: stream frames with their id, offset and length."""
    packets = [*of(events, "transport:packet_sent"), *of(events, "transport:packet_received")]
    frames = [frame for data in packets for frame in data["frames"] if frame["frame_type"] == "stream"]
    assert frames
    assert sum(frame["length"] for frame in frames) >= 4 << 20
    assert max(frame["offset"] + frame["length"] for frame in frames) == 4 << 20
