"""The controller that ignores all reports."""

from __future__ import annotations

from srd.proto.config import ProtocolConfig
from tests.srd.proto.congestion.fixed import Fixed
from tests.srd.proto.control_loop import PACKET_BYTES, RTT_S


def test_fixed__never_changes() -> None:
    control = Fixed(ProtocolConfig(), packet_bytes=PACKET_BYTES)
    before = control.window_bytes
    for step in range(50):
        control.on_sample(
            now=10.0,
            queue_s=1.0,
            endpoint_s=1.0,
            min_rtt_s=RTT_S,
            target_base_s=RTT_S,
            variation_s=0.0,
            ecn_fraction=0.0,
        )
        control.on_ack(now=10.0 + step, acked_bytes=PACKET_BYTES, rtt_s=RTT_S, ack_wait_s=0.0, cwnd_limited=True)
        control.on_loss(now=10.0 + step, lost_bytes=PACKET_BYTES, inflight_bytes=0, by_timeout=False)
        control.on_all_paths_timeout(now=10.0 + step)
    assert control.window_bytes == before == ProtocolConfig().initial_window_packets * PACKET_BYTES
