"""Loss: 0.1, 1, 5 and 10 % of the packets on all paths, in both directions.

4 spines (see reference_fabric.py). Packets are lost between the spines and the receiver's leaf, behind the bottleneck,
so that lost packets use the bottleneck's rate: at most rate x (1 - loss) can land. `capacity_fraction_*`: payload that
lands over that, in one second after half a second of warm-up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from netns.netem.shape import Shape
from scripts.benches.outcome import Round, Wanted
from scripts.benches.reference_fabric import LINK, PAYLOAD_FRACTION, RATE_BPS, bulk, fabric

WANTED: Final = (Wanted("capacity_fraction_1pct", ">=", 0.95), Wanted("capacity_fraction_10pct", ">=", 0.85))
SECONDS: Final = 1.0
WARM_UP_S: Final = 0.5
SPINES: Final = 4
LOSSES: Final = {"0.1pct": 0.1, "1pct": 1.0, "5pct": 5.0, "10pct": 10.0}


def measure(seed: int, seconds: float) -> Round:
    """One round: all losses."""
    figures = {}
    for name, loss_percent in LOSSES.items():
        goodput_bps = _goodput_bps(loss_percent, seed=seed, seconds=seconds)
        capacity_bps = SPINES * RATE_BPS * (1 - loss_percent / 100) * PAYLOAD_FRACTION
        figures[f"capacity_fraction_{name}"] = goodput_bps / capacity_bps
    return Round(seed, figures)


def _goodput_bps(loss_percent: float, *, seed: int, seconds: float) -> float:
    def shape(leaf: str, _spine: str) -> Shape:
        return replace(LINK, loss_percent=loss_percent) if leaf == "leaf2" else LINK

    running = bulk(fabric(spines=SPINES, name="loss", seed=seed, change=shape), seed=seed)
    return running.goodput_bps(warm_up_s=WARM_UP_S, seconds=seconds)
