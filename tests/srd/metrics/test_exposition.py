"""srd.metrics.exposition: Prometheus' own parsers read it, with types and meanings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.samples import Sample

from srd.metrics.exposition import exposition
from srd.metrics.snapshot import MAX_LISTED_PEERS, PeerSnapshot, Snapshot
from srd.peer import PathStats
from srd.proto.paths.path import PathCounters, PathState
from srd.stats import EndpointStats, PeerStats

GAUGES = {
    "peers": "peers",
    "free_bytes": "free_bytes",
    "streams": "streams",
    "smoothed_rtt_s": "smoothed_rtt_seconds",
    "cwnd_bytes": "cwnd_bytes",
    "inflight_bytes": "inflight_bytes",
}


def counters(number: int, names: list[str]) -> PeerStats:
    return PeerStats(**{name: 1000 * number + index for index, name in enumerate(names)})


def snapshot(*, peers: int) -> Snapshot:
    """Counters that are all different."""
    names = [field.name for field in fields(PeerStats)]
    paths = [
        PathStats(number, PathState.SUSPECT if number == 3 else PathState.ACTIVE, 0.001, 5, PathCounters(packets=1))
        for number in range(8)
    ]
    listed = [
        PeerSnapshot(number, "[2001:db8::1]:7000", incoming=True, stats=counters(number, names), paths=paths)
        for number in range(min(peers, MAX_LISTED_PEERS))
    ]
    totals = {field.name: (1 << 53) - i for i, field in enumerate(fields(EndpointStats))}
    return Snapshot('a "title"\n\\', 5.0, EndpointStats(**{**totals, "peers": peers}), listed)


def families(text: str, *, as_openmetrics: bool) -> dict[str, tuple[str, str, list[Sample]]]:
    read: Any = openmetrics.text_string_to_metric_families if as_openmetrics else parser.text_string_to_metric_families
    return {family.name: (family.type, family.documentation, family.samples) for family in read(text)}


@pytest.mark.parametrize("as_openmetrics", [False, True])
def test_every_counter_is_there_with_its_type_and_meaning(as_openmetrics: bool) -> None:  # noqa: FBT001
    made = snapshot(peers=2)
    content_type, text = exposition(made, as_openmetrics=as_openmetrics)
    assert content_type.startswith("application/openmetrics-text" if as_openmetrics else "text/plain")
    found = families(text.decode(), as_openmetrics=as_openmetrics)
    kinds: list[tuple[str, EndpointStats | PeerStats, dict[str, str]]] = [
        ("srd_", made.stats, {}),
        ("srd_peer_", made.peers[1].stats, {"peer": "[2001:db8::1]:7000", "number": "1"}),
    ]
    for prefix, stats, labels in kinds:
        for field in fields(stats):
            name = prefix + GAUGES.get(field.name, field.name)
            type_, meaning, samples = found[name]
            assert type_ == ("gauge" if field.name in GAUGES else "counter"), name
            assert meaning.endswith("."), name
            assert len(meaning) > 15, name
            (value,) = [sample.value for sample in samples if sample.labels == labels]
            assert value == getattr(stats, field.name), name
            assert {sample.name for sample in samples} == {name if field.name in GAUGES else f"{name}_total"}
    states = {(s.labels["number"], s.labels["state"]): s.value for s in found["srd_peer_paths"][2]}
    assert (states["1", "active"], states["1", "suspect"], states["0", "reserve"]) == (7, 1, 0)
    assert "process_cpu_seconds" in found
    assert found["srd_unlisted_peers"][2][0].value == 0


def test_the_number_of_series_is_bounded() -> None:
    sizes = {}
    for peers in (0, MAX_LISTED_PEERS, MAX_LISTED_PEERS + 1, 100_000):
        _, text = exposition(snapshot(peers=peers), as_openmetrics=True)
        found = families(text.decode(), as_openmetrics=True)
        sizes[peers] = sum(len(samples) for _, _, samples in found.values())
        assert found["srd_peers"][2][0].value == peers
        assert found["srd_unlisted_peers"][2][0].value == max(peers - MAX_LISTED_PEERS, 0)
    assert sizes[0] < 50
    assert sizes[MAX_LISTED_PEERS] == sizes[MAX_LISTED_PEERS + 1] == sizes[100_000]
    series = [(s.name, *sorted(s.labels.items())) for _, _, samples in found.values() for s in samples]
    assert len(set(series)) == len(series), "peers of one address are told apart"
