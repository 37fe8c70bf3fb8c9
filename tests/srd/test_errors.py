"""srd.errors: what an error carries, and the public names."""

from __future__ import annotations

import srd


def test_public_names__exist() -> None:
    assert all(getattr(srd, name) is not None for name in srd.__all__)
