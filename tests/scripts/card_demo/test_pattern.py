"""scripts/card_demo/pattern.py: the tenants' data is recognised at any byte, and in nothing else."""

from __future__ import annotations

import random

import pytest

from scripts.card_demo import pattern as subject
from scripts.card_demo.pattern import WINDOW_BYTES, pattern, windows_of_pattern


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("first", [0, 5_000_000, (1 << 32) - 2])
def test_windows_of_pattern__are_found_at_any_byte(at: int, first: int) -> None:
    noise = random.Random(at).randbytes(999)
    data = noise[:at] + pattern(first, 5).tobytes() + noise[at:]
    assert windows_of_pattern(data) == 3


def test_windows_of_pattern__of_fewer_bytes_are_none() -> None:
    data = pattern(7, 3).tobytes()
    assert windows_of_pattern(data) == 1
    assert len(data) == WINDOW_BYTES
    for short in (data[1:], data[:-1], data[:4], b""):
        assert windows_of_pattern(b"\xa5" + short + b"\xa5" * 9) == 0


def test_windows_of_pattern__across_blocks_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_BLOCK_BYTES", 64)
    for at in range(50, 70):
        data = bytes(range(100, 100 + at)) + pattern(3, 9).tobytes() + b"\x01" * 30
        assert windows_of_pattern(data) == 7


def test_windows_of_pattern__nothing_else_is_taken_for_it() -> None:
    for data in (random.Random(1).randbytes(1 << 20), bytes(1 << 16), b"plain text, " * 10_000, bytes(range(256)) * 99):
        assert windows_of_pattern(data) == 0


def test_pattern__no_two_words_of_a_transfer_are_equal() -> None:
    words = pattern(123, 1 << 20)
    assert len(set(words.tolist())) == len(words)
    assert (pattern(123 + 17, 5) == words[17:22]).all()
