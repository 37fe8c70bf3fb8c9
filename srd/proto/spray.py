"""Choice of a path for each burst: the better of two random ones (Mitzenmacher's power of two choices, as in UCCL).

Better means less work ahead: round-trip time times the bytes that would be in flight. Two random candidates spread the
load almost as evenly as looking at all of them, and unlike those do not herd every burst onto one path until its
round trip rises.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from srd.proto.path import Path


def choose(paths: Sequence[Path], *, size_bytes: int, rng: Random, avoid: Path | None = None) -> Path:
    """Pick from `paths` (at least one); not `avoid` when there is another."""
    first = paths[int(rng.random() * len(paths))]
    second = paths[int(rng.random() * len(paths))]
    if first is avoid:
        first = second if second is not avoid else paths[(paths.index(first) + 1) % len(paths)]
    elif second is avoid:
        second = first
    return first if cost(first, size_bytes=size_bytes) <= cost(second, size_bytes=size_bytes) else second


def cost(path: Path, *, size_bytes: int) -> float:
    """Round trip times bytes in flight, once a burst of `size_bytes` has been added."""
    return path.rtt.smoothed_s * (path.inflight_bytes + size_bytes)
