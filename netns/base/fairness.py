"""How fairly something is shared."""

from __future__ import annotations

import math
from collections.abc import Sequence


def jain_index(shares: Sequence[float]) -> float:
    """Return Jain's index, (sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has all; NaN if nobody has any."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else math.nan
