"""XRC domains: an EFA device has none, so names only."""

from __future__ import annotations

from pyverbs.absent import stand_ins

__getattr__ = stand_ins(__name__)
