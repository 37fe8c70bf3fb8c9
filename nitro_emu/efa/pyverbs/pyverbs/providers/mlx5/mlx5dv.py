"""Names of another vendor's provider, which rdma-core's tests import along with EFA's: nothing of it works here."""

from __future__ import annotations

from pyverbs.absent import stand_ins

__getattr__ = stand_ins(__name__)
