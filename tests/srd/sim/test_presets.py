"""srd.sim.presets: what the numbers are made of gives those that results were measured with."""

from __future__ import annotations

from srd.proto.config import ProtocolConfig
from srd.sim.presets import MICROSECOND_FABRIC


def test_microsecond_fabric__numbers() -> None:
    assert (
        ProtocolConfig(
            paths=64,
            initial_window_packets=56,
            initial_rtt_s=100e-6,
            incast_packets=64,
            min_rto_s=100e-6,
            ack_delay_s=10e-6,
            pacing_depth_s=5e-6,
            delay_target_rtts=0.2,
            min_delay_target_s=1e-6,
            endpoint_delay_target_s=100e-6,
        )
        == MICROSECOND_FABRIC
    )
