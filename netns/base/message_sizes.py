"""Published distributions of message sizes: (bytes, share of messages up to this size), linear between the points.

- web search: queries and background flows in a cluster of 6,000 servers. M. Alizadeh et al., "Data Center TCP (DCTCP)",
  SIGCOMM 2010, figure 4, read off as usual since pFabric (SIGCOMM 2013, figure 4a); HPCC's simulator has the same table
  (WebSearch_distribution.txt). 1.7 MB in the mean.
- data mining: a cluster of 1,500 servers. A. Greenberg et al., "VL2: A Scalable and Flexible Data Center Network",
  SIGCOMM 2009, figure 2, read off in the same way (pFabric, figure 4b).
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import Final

Sizes = tuple[tuple[int, float], ...]

WEB_SEARCH: Final[Sizes] = (
    (1, 0.0), (10_000, 0.15), (20_000, 0.2), (30_000, 0.3), (50_000, 0.4), (80_000, 0.53), (200_000, 0.6),
    (1_000_000, 0.7), (2_000_000, 0.8), (5_000_000, 0.9), (10_000_000, 0.97), (30_000_000, 1.0),
)  # fmt: skip
DATA_MINING: Final[Sizes] = (
    (1, 0.0), (180, 0.1), (216, 0.2), (560, 0.3), (900, 0.4), (1_100, 0.5), (1_870, 0.6), (3_160, 0.7),
    (10_000, 0.8), (400_000, 0.9), (3_160_000, 0.95), (100_000_000, 0.98), (1_000_000_000, 1.0),
)  # fmt: skip
DISTRIBUTIONS: Final = {"web-search": WEB_SEARCH, "data-mining": DATA_MINING}


def quantile(sizes: Sizes, share: float) -> float:
    """Return the size that this share of the messages does not exceed."""
    index = max(1, bisect_left([each for _, each in sizes], share))
    (low, below), (high, above) = sizes[index - 1], sizes[min(index, len(sizes) - 1)]
    return low + (high - low) * (share - below) / (above - below) if above > below else float(high)


def mean_bytes(sizes: Sizes) -> float:
    """Return the mean size."""
    steps = pairwise(sizes)
    return sum((above - below) * (low + high) / 2 for (low, below), (high, above) in steps)
