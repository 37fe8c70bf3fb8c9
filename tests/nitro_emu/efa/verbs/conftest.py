from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nitro_emu.efa.verbs.rig import Rig, opened


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with opened(tmp_path) as rig:
        yield rig
