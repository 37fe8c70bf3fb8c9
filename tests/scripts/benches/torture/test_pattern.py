"""scripts.benches.torture.pattern: bytes identify their position, and wrong bytes their origin."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.benches.torture.pattern import CANARY, PIECE_BYTES, Bytes, check, fill, identify_owner

SEED = 7


def message(length: int, *, number: int = 5) -> Bytes:
    found = np.zeros(length, np.uint8)
    fill(found, SEED, owner=3, message=number)
    return found


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 1000, PIECE_BYTES - 1, PIECE_BYTES + 9])
def test_check__filled_bytes_match_in_whole_and_in_part(length: int) -> None:
    found = message(length)
    assert check(found, SEED, owner=3, message=5) is None
    for start in (0, 1, 8, length // 2):
        assert check(found[start:], SEED, owner=3, message=5, offset=start) is None


@pytest.mark.parametrize("shift", [1, 2, 7, 8, 9, 56, 1472])
def test_check__displaced_bytes_are_detected_and_explained(shift: int) -> None:
    found = np.concatenate([message(5000)[shift:], np.zeros(shift, np.uint8)])
    wrong = check(found, SEED, owner=3, message=5)
    assert wrong is not None
    assert wrong.first == 0
    assert "of message 5 of connection 3" in wrong.origin


def test_check__origin_of_wrong_bytes() -> None:
    found = message(3000)
    found[1000:1500] = message(3000, number=6)[1000:1500]
    wrong = check(found, SEED, owner=3, message=5)
    assert wrong is not None
    assert (wrong.first, wrong.last) == (1000, 1499)
    assert wrong.origin == "offset 1000 of message 6 of connection 3"
    found[1000:1500] = 0xEE
    assert "0xee" in str(check(found, SEED, owner=3, message=5))
    fill(found[1000:1500], SEED, owner=CANARY, message=9)
    assert "guard bytes of file 9" in str(check(found, SEED, owner=3, message=5))


def test_owner__of_the_first_lane() -> None:
    assert identify_owner(message(8), SEED) == (3, 5)
    assert identify_owner(message(8), SEED + 1) is None
    assert identify_owner(message(7), SEED) is None
    assert identify_owner(np.zeros(100, np.uint8), SEED) is None
