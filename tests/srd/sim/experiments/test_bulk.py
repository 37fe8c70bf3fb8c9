"""srd.sim.experiments.bulk: each completion posts the next message."""

from __future__ import annotations

from netns.netem.shape import Shape
from netns.topology.model import leaf_spine
from srd.proto.config import ProtocolConfig
from srd.sim.experiments.bulk import MessageStream
from srd.sim.simulation import Simulation


def make(*, outstanding: int, messages: int) -> tuple[Simulation, MessageStream]:
    simulation = Simulation(leaf_spine(shape=Shape(delay_us=100)), config=ProtocolConfig(), seed=1)
    (connection,) = simulation.connect([("h1", "h2")])
    stream = MessageStream(
        connection,
        message_bytes=1000,
        outstanding=outstanding,
        messages=messages,
        fabric=simulation.fabric,
    )
    return simulation, stream


def test_stream__ends_after_its_messages() -> None:
    simulation, stream = make(outstanding=3, messages=10)
    stream.start()
    assert len(stream.posted_at_ns) == 3
    simulation.run(seconds=1)
    deliveries = stream.connection.destination.deliveries
    assert sorted(delivery.immediate for delivery in deliveries) == list(range(10))
    assert all(delivery.at_ns - stream.posted_at_ns[delivery.immediate] >= 200_000 for delivery in deliveries)


def test_stream__without_end_keeps_the_number_in_flight() -> None:
    simulation, stream = make(outstanding=5, messages=0)
    stream.start()
    simulation.run(seconds=0.1)
    assert len(stream.posted_at_ns) - len(stream.connection.source.completions) == 5
    assert len(stream.posted_at_ns) > 500


def test_offer__posts_at_a_rate_whatever_completes() -> None:
    simulation, stream = make(outstanding=0, messages=0)
    began_ns = simulation.now_ns
    stream.offer(every_ns=50_000, until_ns=began_ns + 500_000)  # each takes 200 us
    simulation.run(seconds=1)
    assert stream.posted_at_ns == [began_ns + n * 50_000 for n in range(10)]
    assert sorted(delivery.immediate for delivery in stream.delivered()) == list(range(10))
