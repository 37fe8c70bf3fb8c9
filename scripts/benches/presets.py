"""Protocol settings for networks that the defaults are not made for.

The defaults (srd/proto/config.py) are sized for an interpreter on a busy host: patience and delay targets of
milliseconds, because a process waits that long for its turn. In virtual time hosts take none.
"""

from __future__ import annotations

from typing import Final

from srd.proto.config import ProtocolConfig

MICROSECOND_FABRIC: Final = ProtocolConfig(
    paths=64,
    initial_window_packets=56,
    initial_rtt_s=100e-6,
    min_rto_s=100e-6,
    ack_delay_s=10e-6,
    pacing_depth_s=5e-6,
    delay_target_rtts=0.2,
    min_delay_target_s=1e-6,
    endpoint_delay_target_s=100e-6,
)
"""For switches of 100 Gbit/s, round trips of about 40 us and hosts that answer at once, as a card does.

64 paths are what SRD uses. The first window is one bandwidth-delay product (500 kB), as in NDP: with 16 packets a first
message of 1 MB took 1.6 times as long as the others. 100 us before the first sample and as the least patience are
htsim's for Swift and NDP. An ack waits a quarter of a round trip, as by default; the pacer's depth is 7 packets of
9,000 bytes at line rate. Hosts without noise can aim at a short queue: a fifth of a round trip for large windows, which
leaves the buffer to the many with small ones; the floor lies far below it, so that it does not rule."""
