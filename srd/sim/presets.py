"""Protocol settings for networks that the defaults do not suit.

The defaults (srd/proto/config.py) are for an interpreter on a busy host: timeouts and delay targets of milliseconds,
because a process may wait that long for the CPU. In virtual time hosts take no time.
"""

from __future__ import annotations

import math
from typing import Final

from netns.netem.shape import limit_for
from netns.topology.model import ETHERNET_HEADER_BYTES
from srd.proto.config import MAX_PATHS, ProtocolConfig

RATE_BPS: Final = 100_000_000_000
RTT_S: Final = 40e-6
"""Four links of 5 us there, and as many back."""
PACKET_BYTES: Final = 9000 + ETHERNET_HEADER_BYTES
BDP_BYTES: Final = round(RATE_BPS * RTT_S / 8)
"""500 kB; ports buffer as much."""

MICROSECOND_FABRIC: Final = ProtocolConfig(
    paths=MAX_PATHS,
    initial_window_packets=math.ceil(BDP_BYTES / PACKET_BYTES),
    initial_rtt_s=100e-6,
    incast_packets=limit_for(
        rate_bps=RATE_BPS, delay_us=RTT_S / 8 * 1e6, buffer_bytes=BDP_BYTES, packet_bytes=PACKET_BYTES
    ),
    min_rto_s=100e-6,
    ack_delay_s=RTT_S / 4,
    pacing_depth_s=RTT_S / 8,
    delay_target_rtts=0.2,
    min_delay_target_s=1e-6,
    endpoint_delay_target_s=100e-6,
)
"""For switches of RATE_BPS, round trips of RTT_S, and hosts that answer at once, as a network card does.

- 64 paths: as AWS's SRD.
- Initial window: 56 packets, a bandwidth-delay product, so that a first message is not slowed down by slow start. NDP
  (SIGCOMM 2017) sends its first window at line rate, too.
- Initial round trip: more than an empty one and a full port, 80 us, so that first packets are not sent again while they
  queue.
- 64 packets of an incast: what a port and the wire behind it hold.
- Minimum timeout: that of htsim's Swift (`_min_rto`). Its NDP, which learns of losses by trimmed packets, has 5 ms.
- An ack is delayed by a quarter of a round trip, as by default. The pacer's depth is 7 packets at line rate; by default
  it is half a round trip, as an interpreter is not to be woken for each burst.
- Delay target: hosts without scheduling noise can aim at a short queue, a fifth of a round trip for large windows,
  which leaves the buffer to many flows with small windows. The floor lies far below, so that it has no effect.
- Endpoint's delay target: ten ack delays, where hosts take no time; so it has no effect, either."""
