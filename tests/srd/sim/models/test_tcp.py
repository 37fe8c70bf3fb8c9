"""The models of TCP: each fills a link by itself, as its RFC or paper says that it does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netns.backends.virtual.fabric import VirtualFabric
from scripts.benches.wild.links import PACKET_BYTES, bottleneck
from srd.sim.models.controllers import CONTROLLERS, Acked, BbrController, CubicController
from srd.sim.models.flow import NS_PER_S
from srd.sim.models.transports import TcpFlow

RATE_BPS = 20_000_000
RTT_S = 0.02
BDP_PACKETS = RATE_BPS / 8 * RTT_S / PACKET_BYTES


def acked(now: float, *, rtt_s: float = RTT_S, is_new_round: bool = False) -> Acked:
    return Acked(now, rtt_s, rate=1000.0, inflight=20, is_new_round=is_new_round)


def run(fabric: VirtualFabric, seconds: float) -> None:
    fabric.run(until_ns=fabric.now_ns + round(seconds * NS_PER_S))


@pytest.mark.parametrize("name", CONTROLLERS)
def test_tcp_flow__fills_the_link_by_itself(name: str) -> None:
    fabric = VirtualFabric(bottleneck(rate_bps=RATE_BPS, rtt_s=RTT_S, seed=1))
    flow = TcpFlow(fabric, "h1", "h3", controller=CONTROLLERS[name]())
    flow.start()
    run(fabric, 3)
    delivered = flow.sender.delivered
    run(fabric, 5)
    assert (flow.sender.delivered - delivered) * PACKET_BYTES * 8 / 5 >= 0.95 * RATE_BPS
    assert flow.sender.lost / flow.sender.sent < 0.03


def test_tcp_flow__two_of_a_kind_share() -> None:
    fabric = VirtualFabric(bottleneck(rate_bps=RATE_BPS, rtt_s=RTT_S, seed=1))
    flows = [
        TcpFlow(fabric, source, destination, controller=CubicController())
        for source, destination in (("h1", "h3"), ("h2", "h4"))
    ]
    flows[0].start()
    run(fabric, 1)
    flows[1].start()
    run(fabric, 10)
    before = [flow.sender.delivered for flow in flows]
    run(fabric, 20)
    shares = [flow.sender.delivered - start for flow, start in zip(flows, before, strict=True)]
    assert min(shares) >= 0.3 * sum(shares)


def test_bbr__leaves_the_queue_empty_most_of_the_time() -> None:
    fabric = VirtualFabric(bottleneck(rate_bps=RATE_BPS, rtt_s=RTT_S, seed=1))
    TcpFlow(fabric, "h1", "h3", controller=BbrController()).start()
    run(fabric, 3)
    waits_ns = []
    for _ in range(200):
        run(fabric, 0.01)
        waits_ns.append(fabric.links["left", "right"].wait_ns)
    assert sorted(waits_ns)[100] < 0.25 * RTT_S * NS_PER_S


def test_tcp_flow__goes_on_after_a_timeout() -> None:
    fabric = VirtualFabric(bottleneck(rate_bps=RATE_BPS, rtt_s=RTT_S, seed=1))
    flow = TcpFlow(fabric, "h1", "h3", controller=CubicController())
    flow.start()
    run(fabric, 1)
    fabric.fail("left", at_ns=fabric.now_ns, for_ns=NS_PER_S)
    run(fabric, 1)
    assert flow.sender.controller.window == 1.0
    delivered = flow.sender.delivered
    run(fabric, 3)
    assert flow.sender.delivered > delivered + 1000


def test_cubic__returns_to_its_last_maximum_after_k_seconds() -> None:
    """RFC 9438, section 4.2: K is the cube root of (W_max - cwnd) / C; at t = K the window is W_max."""
    cubic = CubicController()
    cubic.window = 1000.0
    cubic.on_loss(now=0.0)
    assert cubic.window == 700
    k_s = (300 / cubic.C) ** (1 / 3)
    now = 0.0
    while now < k_s:
        for _ in range(int(cubic.window)):
            cubic.on_ack(acked(now, rtt_s=0.1))
        now += 0.1
    assert cubic.window == pytest.approx(1000, rel=0.02)


def test_cubic__a_higher_round_trip_ends_its_slow_start() -> None:
    cubic = CubicController()
    for index in range(20):
        cubic.on_ack(acked(0.0, is_new_round=index == 0))
    window = cubic.window
    late = replace_rtt(acked(0.0, is_new_round=True), rtt_s=RTT_S + 0.005)
    for index in range(20):
        cubic.on_ack(late if index == 0 else replace_rtt(acked(0.0), rtt_s=RTT_S + 0.005))
    assert window + 8 <= cubic.window < window + 12


def replace_rtt(ack: Acked, *, rtt_s: float) -> Acked:
    return replace(ack, rtt_s=rtt_s)


def test_bottleneck__a_buffer_of_one_bandwidth_delay_product_and_losses_one_way() -> None:
    topology = bottleneck(rate_bps=RATE_BPS, rtt_s=RTT_S, jitter_us=100, loss_percent=1, seed=1)
    link = topology.link("left-right")
    assert link.shape_ab is not None
    assert link.shape_ba is not None
    assert (link.shape_ab.delay_us, link.shape_ab.jitter_us, link.shape_ab.rate_bps) == (10_000, 100, RATE_BPS)
    assert link.shape_ab.limit_packets == pytest.approx(1.5 * BDP_PACKETS, abs=2), "half of one is on the way"
    assert (link.shape_ab.loss_percent, link.shape_ba.loss_percent) == (1, 0)
