"""srd.sim.transports: every transport delivers what it was given, at times that the fabric allows."""

from __future__ import annotations

from functools import partial

import pytest

from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from srd.proto.config import ProtocolConfig
from srd.sim.transports import TRANSPORTS

RATE_BPS = 1_000_000_000
LINK_US = 100


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
def test_flow__when_its_last_byte_is_delivered(name: str) -> None:
    """Two flows of one pair of hosts, one of them longer than the longest message, and the way back."""
    transport = TRANSPORTS[name]
    topology = leaf_spine(hosts_per_leaf=1, shape=Shape(delay_us=LINK_US, rate_bps=RATE_BPS))
    config = ProtocolConfig(max_message_bytes=1 << 20)
    simulation = transport.simulation(topology, config=config, seed=1)
    transport.prepare(simulation, [("h1", "h2"), ("h2", "h1"), ("h1", "h2")])
    start = simulation.now_ns / 1e9
    flows = [("h1", "h2", 2_500_000, start), ("h1", "h2", 1, start + 0.05), ("h2", "h1", 100_000, start)]
    ended: dict[int, float] = {}
    for index, (source, destination, size_bytes, at) in enumerate(flows):
        done = partial(ended.__setitem__, index)
        transport.flow(simulation, source, destination, size_bytes, at=at, done=done)
    assert simulation.run(seconds=1, done=lambda: len(ended) == len(flows))
    assert all(count >= 0 for count in transport.counters(simulation).values())
    for index, (_, _, size_bytes, at) in enumerate(flows):
        spines = 4 if index == 0 else 1  # a packet has one way, a longer flow all of them
        assert ended[index] - at >= 2 * LINK_US / 1e6 + size_bytes * 8 / RATE_BPS / spines
    assert ended[1] - flows[1][3] < 0.003
