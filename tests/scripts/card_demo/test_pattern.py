"""scripts/card_demo/pattern.py: the tenants' data is recognised at any byte, and in nothing else."""

from __future__ import annotations

import random

import numpy as np
import pytest

from scripts.card_demo import pattern as subject
from scripts.card_demo.pattern import WORD_BYTES, data, words_of_data
from srd.perf.sweep.rows import Rows


@pytest.mark.parametrize("at", range(WORD_BYTES + 1))
@pytest.mark.parametrize("first", [0, 1 << 20, len(data()) - 5 * WORD_BYTES])
def test_words_of_data__are_found_at_any_byte(at: int, first: int) -> None:
    noise = random.Random(at).randbytes(999)
    assert words_of_data(noise[:at] + data()[first : first + 5 * WORD_BYTES] + noise[at:]) == 5


def test_words_of_data__across_blocks_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_BLOCK_BYTES", 64)
    for at in (50, 57, 64, 70):
        assert words_of_data(bytes(at) + data()[: 9 * WORD_BYTES] + bytes(30)) == 9


def test_words_of_data__nothing_else_is_taken_for_it() -> None:
    for content in (random.Random(1).randbytes(1 << 20), bytes(1 << 16), b"", data()[1:WORD_BYTES], data()[1:12]):
        assert words_of_data(content) == 0


def test_data__is_what_messages_have_after_their_number() -> None:
    rows = Rows(1024)
    assert np.array_equal(rows.rows[:, 4:], np.frombuffer(data(), np.uint8).reshape(-1, 1024)[:, 4:])
    rows.close()
