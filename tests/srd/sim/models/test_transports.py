"""srd.sim.models.transports: every model delivers every byte, in the time that arithmetic says."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import pytest

from netns.backends.virtual.lossless.profile import LOSSLESS
from netns.netem.shape import Shape
from netns.topology.model import Link, Switch, Topology
from srd.sim.models.dcqcn import PAPER_BPS
from srd.sim.models.transports import PAPER_CONFIG, PAPER_MARKING, Dcqcn, roce_framing
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


def fixed_point_marks(flows: int, *, packets_per_s: float, bits: int) -> float:
    """Return p where the derivatives of DCQCN's fluid model are 0: Zhu et al., SIGCOMM 2015, section 5.1.

    Each flow has r = C / N packets a second. Of R_T and R_C, with c = 1 - (1 - p)^(tau r) the chance of a notification
    in tau, and b and t the increases a second by bytes and by time, r p / ((1 - p)^-B - 1) and r p / ((1 - p)^-Tr - 1):

        (R_T - R_C) c / tau = R_AI (b (1 - p)^FB + t (1 - p)^FTr)
        R_C alpha c / (2 tau) = (R_T - R_C) / 2 (b + t)           alpha = 1 - (1 - p)^(tau' r)
    """
    config, r = PAPER_CONFIG, packets_per_s / flows
    tau, timer = config.notification_interval_us * 1e-6, config.timer_us * 1e-6 * r
    counter, fast = 8 * config.byte_counter_bytes / bits, config.fast_recoveries

    def rises_more_than_it_is_cut(p: float) -> bool:
        q = 1 - p
        alpha, cuts = 1 - q ** (config.alpha_period_us * 1e-6 * r), (1 - q ** (tau * r)) / tau
        by_bytes, by_time = r * p / (q**-counter - 1), r * p / (q**-timer - 1)
        target = config.additive * packets_per_s * (by_bytes * q ** (fast * counter) + by_time * q ** (fast * timer))
        return bool(target / cuts / 2 * (by_bytes + by_time) > r * alpha / 2 * cuts)

    low, high = 1e-9, 0.5
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if rises_more_than_it_is_cut(middle) else (low, middle)
    return low


@pytest.mark.long
@pytest.mark.parametrize(("flows", "saturated"), [(2, False), (8, True)])
def test_dcqcn__queue_and_rates_are_those_of_the_fluid_models_fixed_point(*, flows: int, saturated: bool) -> None:
    """The queue within 12 % of where RED marks that much, and each flow within 15 % of C / N.

    With 8 flows that is more than RED's maximum of 1 %, so the queue stays where all is marked from: at Kmax.
    What is simulated goes up and down around it, so it is a blunt check: an alpha that never decays is seen,
    ten times R_AI is not.
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
    simulation.run(seconds=0.1)
    port, ups = simulation.fabric.links["s1", sink], [simulation.fabric.links[source, "s1"] for source in sources]
    before, waits_ns = [up.bytes for up in ups], []
    for _ in range(1000):
        simulation.run(seconds=1e-4)
        waits_ns.append(port.wait_ns)
    framing = roce_framing(mtu=topology.mtu, priority=LOSSLESS)
    bits = 8 * (framing.payload_bytes + framing.overhead_bytes)
    marks = fixed_point_marks(flows, packets_per_s=PAPER_BPS / bits, bits=bits)
    assert (marks > PAPER_MARKING.most) == saturated
    spread = PAPER_MARKING.high_bytes - PAPER_MARKING.low_bytes
    queue_bytes = PAPER_MARKING.low_bytes + min(marks / PAPER_MARKING.most, 1) * spread
    assert fmean(waits_ns) * PAPER_BPS / 8e9 == pytest.approx(queue_bytes, rel=0.12)
    rates = [(up.bytes - then) * 8 / 0.1 for up, then in zip(ups, before, strict=True)]
    assert rates == pytest.approx([PAPER_BPS / flows] * flows, rel=0.15)


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
