"""Settings that the protocol's tests share."""

from __future__ import annotations

from hypothesis import settings

# On a machine that others use too, a wall-clock deadline for one example would fail at random.
settings.register_profile("proto", deadline=None)
settings.load_profile("proto")
