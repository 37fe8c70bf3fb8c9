from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nitro_emu.efa.verbs.fake_card import FakeCard

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "nitro_emu/efa/pyverbs"))

from tests.nitro_emu.efa.pyverbs.objects import ctx, rig  # noqa: F401 - pyverbs is found from here on; fixtures


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCard]:
    """A card whose data path is the test, found as programs find one."""
    card = FakeCard(tmp_path)
    monkeypatch.setenv("NITRO_CARD_DIR", str(tmp_path))
    yield card
    card.close()
