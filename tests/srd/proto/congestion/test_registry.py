"""Every controller carries a message over a lossy network, and is named in the table that users choose from."""

from __future__ import annotations

import pytest

from netns.netem.shape import Shape
from srd.proto.config import ProtocolConfig
from srd.proto.congestion.registry import CONTROLLERS
from srd.proto.events import Completion
from srd.proto.wire.status import Status
from tests.simulation import Network, completed

MIB = 1 << 20


@pytest.mark.parametrize("name", CONTROLLERS)
def test_controllers__carry_a_message(name: str) -> None:
    shape = Shape(delay_us=500, rate_bps=250_000_000, loss_percent=1, limit_packets=30)
    network = Network(seed=3, shape=shape, config=ProtocolConfig(controller=name))
    number, _ = network.connect()
    network.a.core.post(number, request=7, payload_offset=0, length=4 * MIB)
    network.run(until=lambda: bool(completed(network.a)), seconds=20)
    assert completed(network.a) == [Completion(number, 7, Status.OK)]


def test_controllers__the_default_is_one() -> None:
    assert ProtocolConfig().controller == next(iter(CONTROLLERS))
