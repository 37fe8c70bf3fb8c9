"""Sizes: round trips of messages of 1 B to 16 MiB, compared with kernel TCP with TCP_NODELAY.

The exchange of `latency`, idle, for each power of four: `p50_SIZE_us` of SRD and of TCP, and `worst_ratio`, the largest
ratio of the two at one size. `scripts/benches/picture.py` draws the JSON.
"""

from __future__ import annotations

from typing import Final

from scripts.benches.cases.latency import TCP, name_of, round_trips
from scripts.benches.outcome import Round, Wanted
from scripts.harness.drops import no_drops
from scripts.harness.two_hosts import own_cores, veth_pair

WANTED: Final = (Wanted("worst_ratio", "<=", 2, over="median"),)
NEEDS: Final = ()
SECONDS: Final = 13.0
SIZES: Final = tuple(4**power for power in range(13))


def measure(number: int, seconds: float) -> Round:
    with veth_pair(mtu=9000, offload=True) as pair, no_drops(pair.namespaces, during="sizes"):
        two = pair.on(own_cores())
        ours = round_trips(two, "--plain", sizes=SIZES, seconds=seconds)
        tcp = round_trips(two, *TCP, sizes=SIZES, seconds=seconds)
    return Round(number, ours | {"worst_ratio": worst_ratio(ours, tcp)}, {"tcp": tcp})


def worst_ratio(ours: dict[str, float], tcp: dict[str, float]) -> float:
    medians = (f"p50_{name_of(size)}_us" for size in SIZES)
    return max(ours[median] / tcp[median] for median in medians)
