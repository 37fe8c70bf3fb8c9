"""Workloads: which flows, of which sizes, when."""

from __future__ import annotations

import pytest

from netns.base.message_sizes import DISTRIBUTIONS, mean_bytes
from netns.topology.model import leaf_spine, reference
from srd.compare.traffic import AllToAll, Bulk, Incast, Rpc, TrafficError

RACKS = leaf_spine(name="racks", leaves=2, spines=2, hosts_per_leaf=3)
CAPACITY_BPS = 1e9


def test_bulk__from_another_leaf() -> None:
    (flow,) = Bulk(1000).flows(RACKS, capacity_bps=CAPACITY_BPS, seed=1)
    assert (flow.source, flow.destination, flow.size_bytes, flow.at_s) == ("h1", "h6", 1000, 0.0)


def test_incast__to_one_host_at_once() -> None:
    flows = Incast(3, 1000).flows(RACKS, capacity_bps=CAPACITY_BPS, seed=1)
    assert [(flow.source, flow.destination) for flow in flows] == [("h1", "h6"), ("h2", "h6"), ("h3", "h6")]


def test_incast__too_many_senders_are_a_mistake_with_a_remedy() -> None:
    with pytest.raises(TrafficError, match=r"incast\.senders: 4 senders, but racks has 3 hosts .* hosts_per_leaf"):
        Incast(4, 1000).flows(RACKS, capacity_bps=CAPACITY_BPS, seed=1)


def test_all_to_all__each_pair_of_different_leaves() -> None:
    flows = AllToAll(1000).flows(RACKS, capacity_bps=CAPACITY_BPS, seed=1)
    pairs = {(flow.source, flow.destination) for flow in flows}
    assert len(flows) == len(pairs) == 2 * 3 * 3
    assert all(RACKS.switch_of(source) != RACKS.switch_of(destination) for source, destination in pairs)


def test_rpc__the_same_for_a_seed_and_another_for_another() -> None:
    rpc = Rpc("web-search", load=0.5, duration_s=1.0, scale=0.1)
    first, again, other = (rpc.flows(RACKS, capacity_bps=CAPACITY_BPS, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_rpc__bytes_are_the_load_and_times_within_the_duration(name: str) -> None:
    rpc = Rpc(name, load=0.3, duration_s=400.0, scale=0.01)
    flows = rpc.flows(reference(), capacity_bps=10e6, seed=1)
    expected = 0.3 * 10e6 * 400 / 8
    total = sum(flow.size_bytes for flow in flows)
    assert 0.5 * expected < total < 2 * expected  # the sizes have a heavy tail
    rate = 0.3 * 10e6 / (8 * mean_bytes(DISTRIBUTIONS[name]) * 0.01)
    assert len(flows) == pytest.approx(rate * 400, rel=0.2)
    assert 0 <= min(flow.at_s for flow in flows) <= max(flow.at_s for flow in flows) <= 400


def test_rpc__has_a_message_in_any_case() -> None:
    assert len(Rpc("data-mining", load=0.001, duration_s=0.01).flows(RACKS, capacity_bps=1e6, seed=1)) == 1


def test_rpc__too_many_messages_are_a_mistake() -> None:
    with pytest.raises(TrafficError, match=r"rpc\.duration: .* messages a second for 3600 s; shorten it"):
        Rpc("web-search", load=1.0, duration_s=3600.0, scale=0.01).flows(RACKS, capacity_bps=1e9, seed=1)


def test_flows__one_leaf_is_a_mistake() -> None:
    alone = leaf_spine(name="alone", leaves=1, hosts_per_leaf=2)
    with pytest.raises(TrafficError, match="on one leaf"):
        AllToAll(1).flows(alone, capacity_bps=1.0, seed=1)
