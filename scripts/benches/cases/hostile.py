"""Hostile packets beside a regular transfer, on loopback: a million by default, 10,000 a second.

Malformed, well-formed out of place, mutated from the transfer's own packets, every field at its edges; from strangers,
from addresses that never opened a peer, and from opened peers, which misbehave; single and in GSO trains. Slices with
and without them take turns. Every byte of the transfer is compared where it arrives.

`transfer_ok`: all that arrived was right, and no request failed. `crashes`: ends that are gone or wrote a traceback.
`rss_growth_mb`: of the receiver, without the receive region, which is of a fixed size. `amplification_ratio`: bytes
that came to an address that has not shown that it is one, over those that came from it; the worst of all.
`honest_throughput_ratio`: with over without. Needs root, to capture packets.
"""

from __future__ import annotations

import os
from typing import Final

from scripts.benches.errors import BenchError
from scripts.benches.hostile.run import measure as measure_packets
from scripts.benches.outcome import Round, Wanted

PACKETS: Final = 1_000_000
WANTED: Final = (
    Wanted("transfer_ok", ">=", 1),
    Wanted("crashes", "<=", 0),
    Wanted("rss_growth_mb", "<=", 16),
    Wanted("amplification_ratio", "<=", 3),
    Wanted("honest_throughput_ratio", ">=", 0.8),
)


def measure(seed: int, packets: int) -> Round:
    """Make one round."""
    if os.geteuid():
        raise BenchError("hostile captures packets of its own transfer, which needs root; run it with sudo")
    return Round(seed, measure_packets(packets, seed=seed))
