"""srd.sim.models.transports: every model delivers every byte, in the time that arithmetic says."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from netns.backends.virtual.lossless.profile import LOSSLESS
from netns.netem.shape import Shape
from netns.topology.model import Link, Switch, Topology
from srd.sim.models.dcqcn import PAPER_BPS
from srd.sim.models.transports import PAPER_CONFIG, Dcqcn, roce_framing
from srd.sim.presets import MICROSECOND_FABRIC
from srd.sim.roce.fabrics import LINK, tree, with_loss
from srd.sim.simulation import NS_PER_S
from srd.sim.transports import TRANSPORTS

MODELS = [name for name in TRANSPORTS if name != "srd"]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("loss_percent", [0.0, 2.0])
def test_flow__is_delivered_whatever_is_lost(name: str, loss_percent: float) -> None:
    topology = with_loss(tree(leaves=2, hosts_per_leaf=2, spines=1, seed=3), "leaf1-spine1", percent=loss_percent)
    transport = TRANSPORTS[name]
    simulation = transport.simulation(topology, config=MICROSECOND_FABRIC, seed=1)
    done: list[float] = []
    for source, size in (("h1", 1), ("h2", 3_000_001)):
        transport.flow(simulation, source, "h4", size, at=1e-3, done=done.append)
    assert simulation.run(seconds=20, done=lambda: len(done) == 2)
    assert min(done) > 1e-3
    simulation.run(seconds=1)
    assert all(flow.sender.is_done for nic in simulation.nics.values() for flow in nic.flows), (
        "all is acknowledged, too"
    )
    counters = transport.counters(simulation)
    packets = sum(flow.framing.packets(flow.size_bytes) for nic in simulation.nics.values() for flow in nic.flows)
    assert counters["packets_sent"] == packets + counters["packets_resent"]
    assert (counters["packets_resent"] > 0) == (loss_percent > 0)
    assert counters["flows_failed"] == 0


@pytest.mark.parametrize("name", ["roce", "irn"])
def test_one_flow__takes_its_packets_and_the_way_of_the_last(name: str) -> None:
    topology = tree(leaves=2, hosts_per_leaf=1, spines=1, seed=1)
    transport = TRANSPORTS[name]
    simulation = transport.simulation(topology, config=MICROSECOND_FABRIC, seed=1)
    done: list[float] = []
    transport.flow(simulation, "h1", "h2", 4096 * 100, at=0.0, done=done.append)
    assert simulation.run(seconds=1, done=lambda: bool(done))
    wire = 4096 + (58 if name == "roce" else 74)
    expected_ns = (100 + 3) * wire * 0.08 + 4_000
    assert abs(done[0] * NS_PER_S - expected_ns) <= 4


@pytest.mark.parametrize("percent", [0.05, 0.2])
def test_go_back_n__goodput_is_1_over_1_plus_pw(percent: float) -> None:
    """W: the packets of a round trip, from a packet's end at the sender to the NAK's arrival there."""
    lossy = with_loss(tree(leaves=2, hosts_per_leaf=1, spines=1, seed=5), "leaf1-spine1", percent=percent)
    transport = TRANSPORTS["roce"]
    simulation = transport.simulation(lossy, config=MICROSECOND_FABRIC, seed=1)
    done: list[float] = []
    size = 100_000_000
    transport.flow(simulation, "h1", "h2", size, at=0.0, done=done.append)
    assert simulation.run(seconds=5, done=lambda: bool(done))
    rtt_us = 8 * LINK.delay_us + 4 * 4_154 * 8e-5 + 4 * 62 * 8e-5
    window = rtt_us / (4_154 * 8e-5)
    expected = 1 / (1 + percent / 100 * window)
    goodput = size * 8 / (done[0] * 100e9) * 4_154 / 4_096
    assert goodput == pytest.approx(expected, rel=0.03)


@pytest.mark.long
@pytest.mark.parametrize("flows", [2, 8])
def test_dcqcn__marks_at_its_fixed_point(flows: int) -> None:
    """Zhu et al., "ECN or Delay", CoNEXT 2016: p = cbrt(R_AI N^2 / (K C^2) (1 / B + N / (T C))^2), in packets.

    The fluid model has no round trips, and the formula is for small p; so half as much or twice as much would be wrong.
    """
    link = Shape(rate_bps=int(PAPER_BPS), delay_us=1.0)
    hosts = tuple(f"h{index + 1}" for index in range(flows + 1))
    links = tuple(Link(host, "s1", link, link) for host in hosts)
    topology = Topology(name="star", hosts=hosts, switches=(Switch("s1", "leaf"),), links=links, seed=1)
    transport = Dcqcn()
    simulation = transport.simulation(topology, config=MICROSECOND_FABRIC, seed=1)
    *sources, sink = hosts
    for source in sources:
        transport.flow(simulation, source, sink, 2_000_000_000, at=0.0, done=lambda _now: None)
    port = simulation.fabric.links["s1", sink]
    simulation.run(seconds=0.15)
    marked, packets = port.marked, port.packets
    simulation.run(seconds=0.15)
    framing = roce_framing(mtu=topology.mtu, priority=LOSSLESS)
    bits = 8 * (framing.payload_bytes + framing.overhead_bytes)
    rate, config = PAPER_BPS / bits, PAPER_CONFIG
    events = 8 * config.byte_counter_bytes / bits, config.timer_us * 1e-6 * rate
    factor = (1 / events[0] + flows / events[1]) ** 2
    expected = math.cbrt(config.additive * rate * flows**2 / (config.alpha_period_us * 1e-6 * rate**2) * factor)
    assert (port.marked - marked) / (port.packets - packets) == pytest.approx(expected, rel=0.4)


def test_models__run_on_a_fabric_without_such_switches() -> None:
    """As on a dumbbell: a card whose port does not ask sends what the flows allow."""
    plain = tree(leaves=2, hosts_per_leaf=1, spines=1)
    plain = replace(
        plain,
        links=tuple(
            replace(link, shape_ab=Shape(rate_bps=10**9), shape_ba=Shape(rate_bps=10**9)) for link in plain.links
        ),
    )
    simulation = TRANSPORTS["srd"].simulation(plain, config=MICROSECOND_FABRIC, seed=1)
    done: list[float] = []
    TRANSPORTS["cubic"].flow(simulation, "h1", "h2", 1_000_000, at=0.0, done=done.append)
    assert simulation.run(seconds=5, done=lambda: bool(done))
    assert done[0] >= 1_000_000 * 8 / 1e9
