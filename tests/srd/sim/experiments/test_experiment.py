"""Experiments: completion times that arithmetic knows, dependencies, failures, and the same result each time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from netns.faults.schedule import parse_events
from netns.netem.shape import Shape
from netns.topology.model import Topology, leaf_spine
from srd.proto.wire.data import HEADER_BYTES
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.experiment import MAX_STEPS, Experiment, run
from srd.sim.experiments.fabric import Bounds, read_fabric, settings, with_host_ports
from srd.sim.experiments.figures import document, figures
from srd.sim.experiments.workload import Flow, made
from srd.sim.host import WIRE_OVERHEAD_BYTES

PORT = Shape(delay_us=5, rate_bps=100_000_000_000, limit_packets=64)


def fabric(*, hosts_per_leaf: int = 2) -> Topology:
    topology = leaf_spine(leaves=2, spines=2, hosts_per_leaf=hosts_per_leaf, shape=PORT)
    links = tuple(replace(link, shape_ba=PORT) if link.a in topology.hosts else link for link in topology.links)
    return with_host_ports(replace(topology, links=links))


def test_one_flow_takes_little_more_than_the_ideal() -> None:
    """The rest is SRD's own headers, and the ports in the switches that take a packet in whole."""
    result = run(Experiment(fabric(), (Flow("h1", "h3", 2_000_000),)))
    (completion,) = result.completions
    payload = 9000 - 28
    wire_bits = 8 * (2_000_000 + -(-2_000_000 // payload) * WIRE_OVERHEAD_BYTES)
    assert completion.ideal_us == pytest.approx(4 * 5 + wire_bits / 1e5)
    assert completion.slowdown is not None
    assert 1 < completion.slowdown < 1.05
    assert result.failures == ()
    payload_bytes = payload - HEADER_BYTES
    assert result.sent["packets_sent"] - result.sent["packets_resent"] == -(-2_000_000 // payload_bytes)


def test_what_waits_for_others_starts_when_they_are_complete() -> None:
    flows = (
        Flow("h1", "h3", 1_000_000),
        Flow("h2", "h4", 10_000),
        Flow("h3", "h1", 1000, after=(0, 1), needs=2),
        Flow("h3", "h1", 1000, after=(0, 1), needs=1, start_s=1e-6),
    )
    first, second, both, either = run(Experiment(fabric(), flows)).completions
    assert first.fct_us is not None
    assert both.start_us == pytest.approx(first.fct_us)
    assert either.start_us == second.fct_us


def test_a_plan_is_played_and_the_dead_are_told() -> None:
    events = parse_events({"events": [{"at": "10us", "fail": "h3"}]}, base=Path())
    flows = (Flow("h1", "h3", 10_000_000), Flow("h2", "h4", 10_000_000), Flow("h4", "h1", 1, after=(0,), needs=1))
    experiment = Experiment(fabric(), flows, plan=events, limit_s=0.05)
    result = run(experiment)
    dead, alive, waiting = result.completions
    assert dead.fct_us is None
    assert alive.fct_us is not None
    assert (waiting.start_us, waiting.slowdown) == (None, None)
    found = figures(experiment, result)
    assert (found["flows"], found["flows_complete"]) == (3, 1)
    assert found["packets_lost"] > 0
    assert "last_us" not in found


def test_same_experiment_same_result_and_the_seed_matters() -> None:
    topology = fabric(hosts_per_leaf=4)
    flows = made("permutation:300K", hosts=topology.hosts, host_bps=0, seed=1)
    experiment = Experiment(topology, flows)
    first, again = run(experiment), run(experiment)
    assert first == again
    assert document(experiment, first) == document(experiment, again)
    other = replace(experiment, seed=2)
    assert run(other).completions != first.completions
    assert len({experiment.digest(), other.digest(), replace(experiment, paths=4).digest()}) == 3


def test_series__all_bytes_are_in_it_and_it_is_bounded() -> None:
    result = run(Experiment(fabric(), (Flow("h1", "h3", 3_000_000),)))
    series = result.series["leaf2>h3"]
    assert MAX_STEPS / 4 < len(series.sent_bytes) < MAX_STEPS
    assert 3_000_000 < sum(series.sent_bytes) <= result.counters["leaf2>h3"]["bytes"]
    assert result.lasted_us - result.step_us <= len(series.sent_bytes) * result.step_us <= result.lasted_us
    assert max(series.sent_bytes) <= PORT.rate_bps * result.step_us / 8e6 + 9014


def test_paths_and_controller_are_srds() -> None:
    topology = fabric(hosts_per_leaf=4)
    flows = tuple(Flow(f"h{n}", f"h{n + 4}", 400_000) for n in range(1, 3))
    one = Experiment(topology, flows, paths=1, seed=3)
    _, config = one.config()
    assert config.paths == 1
    assert run(one).completions != run(replace(one, paths=None)).completions
    named = replace(one, controller="srd.proto.congestion.delay:MajorityDelay")
    assert run(named).completions == run(one).completions
    for bad in ("srd.proto.congestion.delay", "srd.nothing:Class", "srd.proto.congestion.delay:nothing", ":"):
        with pytest.raises(ExperimentError, match=f"^--controller {bad}: "):
            replace(one, controller=bad).config()
    with pytest.raises(ExperimentError, match=r"^paths: 65 is not between 1 and 64$"):
        replace(one, paths=65).config()
    with pytest.raises(ExperimentError, match=r"^--transport pigeon: there is none"):
        run(replace(one, transport="pigeon"))


@pytest.mark.parametrize(
    ("name", "hosts", "rtt_us"), [("incast48", 60, 40), ("clos128", 128, 12), ("clos1024", 1024, 12)]
)
def test_built_in_fabrics(name: str, hosts: int, rtt_us: float) -> None:
    topology = read_fabric(name)
    bounds = Bounds(topology)
    assert len(topology.hosts) == hosts
    assert bounds.longest_rtt_us() == rtt_us
    assert settings(topology)[0] == "microseconds"
    ideal_us = bounds.ideal_us(topology.hosts[0], topology.hosts[-1], size_bytes=10_000_000)
    assert ideal_us == pytest.approx(rtt_us / 2 + 800, rel=0.02)


@pytest.mark.parametrize(("rate_bps", "name"), [(10**9, "defaults"), (10**10, "microseconds"), (0, "microseconds")])
def test_settings__are_those_for_microseconds_where_a_packet_takes_few(rate_bps: int, name: str) -> None:
    shape = Shape(delay_us=5, rate_bps=rate_bps)
    topology = leaf_spine(leaves=2, spines=4, hosts_per_leaf=1, shape=shape)
    links = tuple(replace(each, shape_ab=shape, shape_ba=shape) for each in topology.links)
    assert settings(replace(topology, links=links))[0] == name


def test_bounds__the_narrowest_cut_of_unshaped_hosts() -> None:
    topology = leaf_spine(leaves=2, spines=4, hosts_per_leaf=1, shape=Shape(delay_us=500, rate_bps=250_000_000))
    assert settings(topology)[0] == "defaults"
    assert Bounds(topology).ideal_us("h1", "h2", size_bytes=897_200) == pytest.approx(1000 + 8 * 901_400 / 1000)
