"""Slow path: one of 8 paths has a tenth of the others' rate.

8 spines (see reference_fabric.py); the links of one have 25 Mbit/s with the others' buffer, as a port keeps its memory
when it falls back to a lower speed. `capacity_fraction`: payload that lands, over the capacity of the 8 paths for
payload (7 x 250 + 25 Mbit/s without headers), in one second after half a second of warm-up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from netns.netem.shape import Shape
from scripts.benches.outcome import Round, Wanted
from scripts.benches.reference_fabric import LINK, PAYLOAD_FRACTION, RATE_BPS, bulk, fabric

WANTED: Final = (Wanted("capacity_fraction", ">=", 0.95),)
SECONDS: Final = 1.0
WARM_UP_S: Final = 0.5
SPINES: Final = 8
SLOW_BPS: Final = RATE_BPS // 10
SLOW_SPINE: Final = "spine1"


def measure(seed: int, seconds: float) -> Round:
    """One round."""
    running = bulk(fabric(spines=SPINES, name="slow-path", seed=seed, change=_shape), seed=seed)
    goodput_bps = running.goodput_bps(warm_up_s=WARM_UP_S, seconds=seconds)
    capacity_bps = ((SPINES - 1) * RATE_BPS + SLOW_BPS) * PAYLOAD_FRACTION
    sender = running.connection.sender
    return Round(
        seed,
        {
            "capacity_fraction": goodput_bps / capacity_bps,
            "goodput_mbps": goodput_bps / 1e6,
            "capacity_mbps": capacity_bps / 1e6,
            "retransmitted_fraction": sender.retransmitted / sender.packets,
        },
    )


def _shape(_leaf: str, spine: str) -> Shape:
    return replace(LINK, rate_bps=SLOW_BPS) if spine == SLOW_SPINE else LINK
