"""Access to memory with the ordering of DMA: names only."""

from __future__ import annotations

from pyverbs.absent import stand_ins

__getattr__ = stand_ins(__name__)
