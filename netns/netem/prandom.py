"""The kernel's seedable pseudo-random generator, bit for bit: the source of netem's draws.

Source: Linux lib/random32.c (prandom_u32_state: L'Ecuyer's four-component Tausworthe generator taus113) and
include/linux/prandom.h (prandom_seed_state, which netem uses; it has no warm-up rounds).
The public check is netem's own: with seed 42424242 and 10 % loss, packets 5, 12 and 24 of the first 25 drop.

Theory of operation. To step four 32-bit components for each draw would cost more than everything else that Python does
for a relayed packet. A step is linear over GF(2) (shifts, masks, xor), and so are BLOCK steps at once: four table
look-ups per component, one for each byte of its state, xored. So a block of successive states advances to the next
block in a few NumPy operations.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

U32_MAX = 0xFFFFFFFF
U64_MAX = 0xFFFFFFFFFFFFFFFF

BLOCK = 256

# TAUSWORTHE(s, a, b, c, d) of lib/random32.c for each component, and the minimum state that __seed() allows.
_COMPONENTS = (
    (6, 13, 0xFFFFFFFE, 18),
    (2, 27, 0xFFFFFFF8, 2),
    (13, 21, 0xFFFFFFF0, 7),
    (3, 12, 0xFFFFFF80, 13),
)
_LEAST = (2, 8, 16, 128)


def draws(seed: int) -> Iterator[int]:
    """Yield the endless sequence of prandom_u32_state() after prandom_seed_state(seed), 0 <= seed < 2**64."""
    return chain.from_iterable(_blocks(seed))


def _step(component: int, state: int) -> int:
    """Advance one component by one draw: ((s & c) << d) ^ (((s << a) ^ s) >> b), in 32 bits."""
    a, b, c, d = _COMPONENTS[component]
    return (((state & c) << d) & U32_MAX) ^ ((((state << a) & U32_MAX) ^ state) >> b)


def _blocks(seed: int) -> Iterator[list[int]]:
    """Yield the draws in blocks; nothing is computed before the first is requested."""
    folded = ((seed >> 32) ^ (seed << 10) ^ seed) & U32_MAX
    runs = []
    for component, least in enumerate(_LEAST):
        state = folded + least if folded < least else folded  # smaller ones never reach the upper bits: __seed()
        run = []
        for _ in range(BLOCK):
            state = _step(component, state)
            run.append(state)
        runs.append(np.array(run, dtype="<u4"))
    tables = [_jump_tables(component) for component in range(len(runs))]
    while True:
        yield np.bitwise_xor.reduce(runs).tolist()
        runs = [_jump(run, table) for run, table in zip(runs, tables, strict=True)]


def _jump(states: NDArray[np.uint32], tables: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Advance each state of shape (BLOCK,) by BLOCK draws; `tables` has shape (4, 256), one row per byte."""
    octets = states.view(np.uint8).reshape(-1, 4)
    jumped: NDArray[np.uint32] = tables[0][octets[:, 0]]
    for octet in (1, 2, 3):
        jumped ^= tables[octet][octets[:, octet]]
    return jumped


@cache
def _jump_tables(component: int) -> NDArray[np.uint32]:
    """Compute the state that BLOCK steps make of each value of each of the four bytes of a state."""
    images = []
    for bit in range(32):
        state = 1 << bit
        for _ in range(BLOCK):
            state = _step(component, state)
        images.append(state)
    tables = np.zeros((4, 256), dtype="<u4")
    for octet in range(4):
        for bit in range(8):
            has_bit = (np.arange(256) >> bit) & 1 == 1
            tables[octet, has_bit] ^= np.uint32(images[8 * octet + bit])
    return tables
