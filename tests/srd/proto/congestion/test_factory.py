"""`ProtocolConfig.controller`: a user's controller, compiled or not, transfers a message over a lossy network."""

from __future__ import annotations

import pytest

from netns.netem.shape import Shape
from srd.proto.config import ProtocolConfig
from srd.proto.congestion.delay import MajorityDelay
from srd.proto.controller import ControllerFactory
from srd.proto.events import Completion
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import completed, connected
from tests.srd.proto.congestion.fixed import Fixed

MIB = 1 << 20


@pytest.mark.parametrize("controller", [None, MajorityDelay, Fixed])
def test_controllers__transfer_a_message(controller: ControllerFactory | None) -> None:
    shape = Shape(delay_us=500, rate_bps=250_000_000, loss_percent=1, limit_packets=30)
    network, number, _ = connected(seed=3, shape=shape, config=ProtocolConfig(controller=controller))
    network.a.core.post(number, WorkRequest(request=7, payload_offset=0, length=4 * MIB))
    network.run(until=lambda: bool(completed(network.a)), seconds=20)
    assert completed(network.a) == [Completion(number, 7, Status.OK)]
