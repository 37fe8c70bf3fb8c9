"""A card and its chip."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nitro_emu.chip.chips import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(directory=tmp_path)
