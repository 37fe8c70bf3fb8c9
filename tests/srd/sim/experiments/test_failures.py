"""srd.sim.experiments.failures: gaps and repairs are those that happened."""

from __future__ import annotations

import math

import pytest

from netns.faults.schedule import ScheduledEvent
from scripts.benches.reference_fabric import ENDS, LINK, PACKET_BYTES, fabric
from srd.proto.config import ProtocolConfig
from srd.sim.experiments.bulk import BulkSimulation, streams
from srd.sim.experiments.failures import IN_USE_PACKETS, Failures
from srd.sim.simulation import Simulation


def running(*, spines: int) -> BulkSimulation:
    simulation = Simulation(fabric(spines=spines, name="x", seed=1), config=ProtocolConfig(), seed=1)
    found = BulkSimulation(simulation, streams(simulation, [ENDS], message_bytes=64 << 10))
    for stream in found.streams:
        stream.start()
    return found


@pytest.mark.parametrize("how", ["for", "repair"])
def test_repaired__when_the_link_that_had_carried_most_carries_packets(how: str) -> None:
    bulk = running(spines=2)
    events = [ScheduledEvent(100_000, "fail", "spine1", for_us=50_000 if how == "for" else None)]
    events += [ScheduledEvent(150_000, "repair", "spine1")] if how == "repair" else []
    failures = Failures(bulk, events, watched_from_ns=bulk.simulation.now_ns)
    bulk.simulation.run(seconds=0.15)
    assert failures.figures()["repaired_s"] == math.inf
    bulk.simulation.run(seconds=1.0)
    fastest_s = IN_USE_PACKETS * PACKET_BYTES * 8 / LINK.rate_bps
    assert fastest_s < failures.figures()["repaired_s"] < 1


def test_gaps__all_paths_are_dead_for_so_long_and_only_later_ones_count() -> None:
    bulk = running(spines=1)
    now_ns = bulk.simulation.now_ns
    events = [ScheduledEvent(at_us, "fail", "spine1", for_us=for_us) for at_us, for_us in ((5e4, 1e5), (5e5, 3e4))]
    early = Failures(bulk, events, watched_from_ns=now_ns)
    late = Failures(bulk, [], watched_from_ns=now_ns + 400_000_000)
    bulk.simulation.run(seconds=1.0)
    found, later = early.figures(), late.figures()
    assert 100 < found["longest_packet_gap_ms"] <= found["longest_gap_ms"] < 200
    assert 30 < later["longest_packet_gap_ms"] <= later["longest_gap_ms"] < 100
    assert found["failed_requests"] == 0
    assert found["messages"] == later["messages"] == len(bulk.connections[0].destination.deliveries)
    assert "repaired_s" not in later


def test_failed_requests__when_nobody_is_reached_any_more_and_no_more_are_posted() -> None:
    bulk = running(spines=1)
    failures = Failures(bulk, [ScheduledEvent(5e4, "fail", "spine1")], watched_from_ns=bulk.simulation.now_ns)
    bulk.simulation.run(seconds=5.0)
    assert 24 < failures.figures()["failed_requests"] <= 24 + 2, "what was outstanding, and the peer at its ends"
