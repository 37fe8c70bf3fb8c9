"""The kernel's seedable pseudo-random generator, bit for bit: what netem's draws come from.

Source: Linux lib/random32.c (prandom_u32_state: L'Ecuyer's four-component Tausworthe generator taus113) and
include/linux/prandom.h (prandom_seed_state, which netem uses: unlike prandom_seed_full_state, no warm-up rounds).
The public check is netem's own: with seed 42424242 and 10 % loss, packets 5, 12 and 24 of the first 25 drop.
"""

from __future__ import annotations

U32_MAX = 0xFFFFFFFF
U64_MAX = 0xFFFFFFFFFFFFFFFF


class Prandom:
    """One generator (struct rnd_state); `next_u32()` gives the next of its uniform 32-bit numbers."""

    __slots__ = ("_s1", "_s2", "_s3", "_s4")

    def __init__(self, seed: int) -> None:
        word = ((seed >> 32) ^ (seed << 10) ^ seed) & U32_MAX
        # __seed(): each component must exceed its minimum, or its upper bits never leave zero.
        self._s1, self._s2, self._s3, self._s4 = (
            word + minimum if word < minimum else word for minimum in (2, 8, 16, 128)
        )

    def next_u32(self) -> int:
        """Step all four components; 0 <= result < 2**32."""
        s1, s2, s3, s4 = self._s1, self._s2, self._s3, self._s4
        # The kernel's u32 arithmetic drops what `<<` pushes out: masked here before the shift (& c), or after.
        self._s1 = s1 = ((s1 & 0x00003FFE) << 18) ^ ((((s1 << 6) & U32_MAX) ^ s1) >> 13)
        self._s2 = s2 = ((s2 & 0x3FFFFFF8) << 2) ^ ((((s2 << 2) & U32_MAX) ^ s2) >> 27)
        self._s3 = s3 = ((s3 & 0x01FFFFF0) << 7) ^ ((((s3 << 13) & U32_MAX) ^ s3) >> 21)
        self._s4 = s4 = ((s4 & 0x0007FF80) << 13) ^ ((((s4 << 3) & U32_MAX) ^ s4) >> 12)
        return s1 ^ s2 ^ s3 ^ s4
