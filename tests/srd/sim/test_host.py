"""srd.sim.host: a core in virtual time: what it sends, when, and its events."""

from __future__ import annotations

import io

import pytest

from netns.backends.virtual.event_log import JsonLines
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from srd.proto.config import ProtocolConfig
from srd.proto.events import Event, MessageReceived
from srd.proto.wire.data import Burst
from srd.proto.wire.status import Status
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
