from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nitro_emu.efa.verbs.fake_card import FakeCard


@pytest.fixture
def card(tmp_path: Path) -> Iterator[FakeCard]:
    card = FakeCard(tmp_path)
    yield card
    card.close()
