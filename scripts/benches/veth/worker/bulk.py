"""What benches send in turns: random bytes that both ends generate from a seed, and compare between two turns.

Messages are sent repeatedly from a few buffers, as iperf3 sends one of 128 KiB, because the kernel copies faster from
the CPU cache than from memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from srd import Psk

SEED: Final = 1
MESSAGE_BYTES: Final = 1 << 20
SOURCE_BYTES: Final = 4 << 20
"""Size of the buffer that messages are sent from: it stays in the CPU cache, and consecutive messages differ."""
PSK: Final = Psk(bytes(range(32)))
"""Encrypts like every mode; without files of keys."""
INTACT: Final = 1
DAMAGED: Final = 0


def content() -> npt.NDArray[np.uint8]:
    return np.frombuffer(np.random.default_rng(SEED).bytes(SOURCE_BYTES), np.uint8)
