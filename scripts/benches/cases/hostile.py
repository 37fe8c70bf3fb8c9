"""Hostile packets beside a regular, encrypted transfer (or `--plain`), on loopback: a million, 10,000 a second.

Packets are malformed, well-formed but unexpected, mutated from the transfer's own packets, or have every field at its
limits. They come from unknown senders, from addresses that never opened a peer, and from open peers that misbehave;
single and in GSO trains. Those of open peers are authentic, but for a fifth. Further peers lie in every field, in
packets and trains that are all authentic, and seal some in the name of the transfer (not with `--plain`). Time slices
with and without all that alternate. The receiver compares every byte of the transfer.

`transfer_ok`: all data was right, nothing else came in its sender's name, no request failed, and all that completed was
delivered. `lies`: packets and trains of the peers that lie. `crashes`: ends that died or wrote a traceback.
`rss_growth_mb`: of the receiver, without the receive region, whose size is fixed. `amplification_ratio`: bytes sent to
an address that was not validated, over the bytes received from it; the worst of all. `honest_throughput_ratio`:
throughput with over without hostile packets. Needs root, to capture packets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from scripts.benches.case import Request
from scripts.benches.hostile.run import measure
from scripts.benches.outcome import Round, Wanted
from scripts.harness.errors import BenchError

PACKETS: Final = 1_000_000
WANTED: Final = (
    Wanted("transfer_ok", ">=", 1),
    Wanted("crashes", "<=", 0),
    Wanted("rss_growth_mb", "<=", 16),
    Wanted("amplification_ratio", "<=", 3),
    Wanted("honest_throughput_ratio", ">=", 0.8),
)


def rounds(request: Request) -> Iterator[Round]:
    """Make one round with so many packets."""
    if os.geteuid():
        raise BenchError("hostile captures packets of its own transfer, which needs root; run it with sudo")
    seed = 1 if request.seed is None else request.seed
    yield Round(seed, measure(request.packets or PACKETS, seed=seed, secure=not request.plain))
