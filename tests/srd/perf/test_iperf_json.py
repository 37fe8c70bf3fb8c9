"""The schema: keys of reports that iperf 3.12 has written (tests/data/iperf3/README.md), and a public parser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import iperf3
import pytest

from srd.perf.iperf_json import document, error_document
from srd.perf.parameters import Direction, Parameters, Protocol
from srd.perf.results import PerfReport
from srd.perf.tcp_socket import CUBIC
from tests.srd.perf.ends import SRD_AND_TCP, served

SAMPLES = Path(__file__).parents[2] / "data" / "iperf3"
TCP_ONLY = {"sender_tcp_congestion", "receiver_tcp_congestion"}
SIZE = 1 << 20


def keys(value: Any, *, at: str = "") -> set[str]:
    """Every key with the keys that lead to it; entries of a list have one name."""
    if isinstance(value, dict):
        return {name for key, inner in value.items() for name in {f"{at}.{key}", *keys(inner, at=f"{at}.{key}")}}
    if isinstance(value, list):
        return {name for inner in value for name in keys(inner, at=f"{at}[]")}
    return set()


async def measured(protocol: Protocol, direction: Direction, *, streams: int) -> PerfReport:
    parameters = Parameters(
        protocol,
        "" if protocol is Protocol.SRD else CUBIC,
        seconds=0.0,
        size_bytes=SIZE,
        streams=streams,
        block_bytes=100_000,
        direction=direction,
        server_output=direction is Direction.REVERSE,
    )
    async with served(as_json=True) as server:
        return await server.run(parameters)


@pytest.mark.parametrize("protocol", SRD_AND_TCP)
@pytest.mark.parametrize(
    ("sample", "direction", "streams"),
    [("forward", Direction.FORWARD, 1), ("reverse", Direction.REVERSE, 1), ("bidir", Direction.BOTH, 2)],
)
async def test_a_report_has_all_keys_of_iperf3s(
    protocol: Protocol, sample: str, direction: Direction, streams: int
) -> None:
    made = json.loads(json.dumps(document(await measured(protocol, direction, streams=streams))))
    theirs = keys(json.loads((SAMPLES / f"{sample}.json").read_text()))
    missing = {key for key in theirs - keys(made) if protocol is Protocol.TCP or key.split(".")[-1] not in TCP_ONLY}
    assert not missing
    end = made["end"]
    assert end["sum_sent"]["bytes"] == end["sum_received"]["bytes"] == SIZE
    assert sum(stream["sender"]["bytes"] for stream in end["streams"]) == SIZE * (2 if sample == "bidir" else 1)
    assert end["sum_sent"]["sender"] is (direction is not Direction.REVERSE)
    assert made["intervals"][0]["sum"]["sender"] is (direction is not Direction.REVERSE)


@pytest.mark.parametrize("protocol", SRD_AND_TCP)
async def test_a_public_parser_reads_a_report(protocol: Protocol) -> None:
    result = iperf3.TestResult(json.dumps(document(await measured(protocol, Direction.FORWARD, streams=2))))
    assert result.error is None
    assert result.type == "client"
    assert result.protocol == protocol.value
    assert result.num_streams == 2
    assert result.remote_host == "127.0.0.1"
    assert result.local_cpu_total > 0
    if protocol is Protocol.TCP:  # this parser knows sums of TCP and of UDP only
        assert result.sent_bytes == result.received_bytes == SIZE


def test_a_public_parser_reads_an_error() -> None:
    assert iperf3.TestResult(json.dumps(error_document("busy"))).error == "busy"
