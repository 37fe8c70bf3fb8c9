"""Protocol settings for networks that the defaults do not suit.

The defaults (srd/proto/config.py) are for an interpreter on a busy host: timeouts and delay targets of milliseconds,
because a process may wait that long for the CPU. In virtual time hosts take no time.
"""

from __future__ import annotations

from typing import Final

from srd.proto.config import ProtocolConfig

MICROSECOND_FABRIC: Final = ProtocolConfig(
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
"""For switches of 100 Gbit/s, RTTs of about 40 us, and hosts that answer at once, as a network card does.

AWS's SRD uses 64 paths. The initial window is one bandwidth-delay product (500 kB), as in NDP, so that a first message
is not slowed down by slow start. The initial RTT and the minimum timeout of 100 us are htsim's for Swift and NDP. An
ACK is delayed by a quarter of an RTT, as by default; the pacer's depth is 7 packets of 9,000 bytes at line rate. Hosts
without scheduling noise can aim at a short queue: a fifth of an RTT for large windows, which leaves the buffer to
many flows with small windows. The floor of the target lies far below, so that it has no effect."""
