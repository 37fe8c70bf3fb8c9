"""Lengths of messages, drawn densely around every boundary of the transport."""

from __future__ import annotations

from random import Random
from typing import Final

GRO_BYTES: Final = 1 << 16
"""Upper bound of a GRO datagram."""
_PACKETS: Final = (1, 1, 2, 3, 4, 6, 7, 8, 9, 16, 44, 45, 63, 64, 65, 128, 256, 257)


def length(rng: Random, *, segment_bytes: int, chunk_bytes: int, longest: int, small: float) -> int:
    """Draw a length of at most `longest`; a fraction `small` of them is a packet or less."""
    most = min(longest, segment_bytes) if rng.random() < small else longest
    return max(min(_draw(rng, segment_bytes, chunk_bytes, most), most), 0)


def _draw(rng: Random, segment_bytes: int, chunk_bytes: int, most: int) -> int:
    near = rng.randint(-3, 3)
    if most <= segment_bytes:
        return rng.choice((0, 1, rng.randint(2, 64), rng.randint(0, most), most, most - rng.randint(0, 3)))
    match rng.randrange(6):
        case 0:
            return rng.choice((0, 1, 7, 8, 9, 64, rng.randint(0, segment_bytes)))
        case 1 | 2:
            return segment_bytes * rng.choice(_PACKETS) + near
        case 3:
            return rng.choice((chunk_bytes, GRO_BYTES)) * rng.randint(1, 4) + near
        case 4:
            return int(2 ** rng.uniform(0, most.bit_length()))
        case _:
            return rng.randint(0, most)
