"""srd.sim.host: a core in virtual time: what it sends, when, and its events."""

from __future__ import annotations

import io

import pytest

from netns.backends.virtual.virtual_link import JsonLines
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from srd.proto.config import ProtocolConfig
from srd.proto.events import Event, MessageReceived
from srd.proto.wire.data import Burst
from srd.proto.wire.status import Status
from srd.sim.host import EPOCH_S, HostClock
from srd.sim.simulation import Connection, Simulation

SHAPE = Shape(delay_us=500, rate_bps=250_000_000)


def opened(*, seed: int = 1, shape: Shape = SHAPE, file: io.StringIO | None = None) -> tuple[Simulation, Connection]:
    topology = leaf_spine(shape=shape, seed=seed)
    observe = None if file is None else JsonLines(file)
    simulation = Simulation(topology, config=ProtocolConfig(), seed=seed, observe=observe)
    (connection,) = simulation.connect([("h1", "h2")])
    return simulation, connection


@pytest.mark.parametrize("length", [0, 1, 8916, 8917, 300_000])
def test_message__is_delivered_once_and_completes(length: int) -> None:
    simulation, connection = opened()
    events: list[Event] = []
    connection.destination.on_event = events.append
    request = connection.post(length=length, immediate=7)
    connection.source.serve()
    assert simulation.run(seconds=1, done=lambda: request in connection.source.completions)
    (delivery,) = connection.destination.deliveries
    assert (delivery.length, delivery.immediate, delivery.peer) == (length, 7, connection.remote_peer)
    completed_at_ns, status = connection.source.completions[request]
    assert status is Status.OK
    assert completed_at_ns > delivery.at_ns
    assert [event.length for event in events if isinstance(event, MessageReceived)] == [length]
    packets = max(-(-length // connection.source.payload_bytes), 1)
    sender = connection.sender  # spurious retransmissions are in flight
    assert (sender.packets - sender.retransmitted, connection.receiver.packets) == (packets, packets)


def test_sim_host__has_the_fabrics_time() -> None:
    """A packet of 56 bytes crosses two links of 0.5 ms; the message is at h2 exactly then."""
    simulation, connection = opened()
    started_ns = simulation.now_ns
    connection.post(length=0)
    connection.source.serve()
    simulation.run(seconds=1)
    (delivery,) = connection.destination.deliveries
    wire_ns = 2 * (98 * 8 * 4)  # 98 bytes at 250 Mbit/s, twice
    assert delivery.at_ns - started_ns == 1_000_000 + wire_ns


def test_sim_host__grants_credit_again() -> None:
    """More than the receive window is transferred: messages are released as they are delivered."""
    simulation, connection = opened(shape=Shape(delay_us=50, rate_bps=0))
    for _ in range(5):
        connection.post(length=16 << 20)
    connection.source.serve()
    assert simulation.run(seconds=30, done=lambda: len(connection.source.completions) == 5)


def test_loses__takes_chosen_packets_once() -> None:
    simulation, connection = opened()
    asked: list[tuple[int, int]] = []

    def second(burst: Burst, index: int) -> bool:
        asked.append((burst.psn, index))
        return len(asked) == 2

    connection.source.loses = second
    connection.post(length=20 * connection.source.payload_bytes)
    connection.source.serve()
    simulation.run(seconds=1)
    assert len(connection.destination.deliveries) == 1
    assert (connection.sender.retransmitted, connection.receiver.packets) == (1, 20)
    assert len(asked) == 21


def test_same_seed__same_trace_to_the_byte() -> None:
    def trace(seed: int) -> str:
        file = io.StringIO()
        simulation, connection = opened(seed=seed, shape=Shape(delay_us=200, jitter_us=50, loss_percent=2), file=file)
        connection.post(length=3_000_000)
        connection.source.serve()
        simulation.run(seconds=0.5)
        assert connection.destination.deliveries
        return file.getvalue()

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def test_peer__that_dies_is_reported() -> None:
    simulation, connection = opened()
    simulation.fabric.fail("h2", at_ns=simulation.now_ns)
    request = connection.post(length=100_000)
    connection.source.serve()
    simulation.run(seconds=3)
    assert connection.source.completions[request][1] is Status.LOCAL_ERROR_UNRESP_REMOTE
    assert [ended.status for ended in connection.source.ended] == [Status.LOCAL_ERROR_UNRESP_REMOTE]


# -- the clock ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drift_ppm", [0.0, 100.0, -100.0])
def test_clock__drifts(drift_ppm: float) -> None:
    clock = HostClock(offset_s=3.0, drift_ppm=drift_ppm)
    assert clock.read(0) == EPOCH_S + 3.0
    assert clock.read(10**10) == pytest.approx(EPOCH_S + 13.0 + drift_ppm * 1e-5, abs=1e-8)


@pytest.mark.parametrize("step_s", [1.0, -1.0])
def test_clock__steps(step_s: float) -> None:
    clock = HostClock()
    clock.step(step_s)
    assert clock.read(10**9) == pytest.approx(EPOCH_S + 1.0 + step_s, abs=1e-8)


@pytest.mark.parametrize("drift_ppm", [0.0, 100.0, -100.0])
def test_clock__a_deadline_is_not_reached_before(drift_ppm: float) -> None:
    """Within a microsecond: a float has no more digits."""
    clock = HostClock(offset_s=0.3, drift_ppm=drift_ppm)
    clock.step(-0.2)
    for at in (EPOCH_S + 0.1, EPOCH_S + 0.7, EPOCH_S + 123.456):
        reached_at_ns = clock.reached_at_ns(at)
        assert clock.read(reached_at_ns) == pytest.approx(at, abs=1e-6)
        assert clock.read(reached_at_ns - 1000) < at


@pytest.mark.parametrize("step_s", [1.0, -1.0])
def test_sim_host__with_a_clock_that_is_off_receives(step_s: float) -> None:
    """It is fast by 1 %, and set while data is on its way: what was sent before and after the step arrives once."""
    simulation = Simulation(leaf_spine(shape=SHAPE, seed=1), config=ProtocolConfig(), seed=1)
    host = simulation.sim_host("h2")
    clock = host.clock = HostClock(offset_s=4290.0, drift_ppm=10_000)
    (connection,) = simulation.connect([("h1", "h2")])
    assert host.now == clock.read(simulation.now_ns)
    connection.post(length=3_000_000)
    connection.source.serve()
    simulation.run(seconds=0.01)
    clock.step(step_s)
    simulation.run(seconds=2)
    assert len(connection.destination.deliveries) == 1
    assert connection.sender.idle
