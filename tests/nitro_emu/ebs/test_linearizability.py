"""The checker itself: what it lets pass, and what it does not."""

from __future__ import annotations

import math

import pytest

from tests.nitro_emu.ebs.linearizability import Operation, is_linearizable


def write(value: int, begun_at: float, ended_at: float = math.inf) -> Operation:
    return Operation(is_write=True, begun_at=begun_at, value=value, ended_at=ended_at)


def read(value: int, begun_at: float, ended_at: float) -> Operation:
    return Operation(is_write=False, begun_at=begun_at, value=value, ended_at=ended_at)


@pytest.mark.parametrize(
    ("history", "is_good"),
    [
        ([write(1, 0, 1), read(1, 2, 3)], True),
        ([write(1, 0, 1), read(0, 2, 3)], False),
        ([write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)], False),
        ([write(1, 0, 3), read(0, 1, 2), read(1, 1, 2)], True),
        ([write(1, 0, 9), read(1, 1, 2), read(0, 3, 4)], False),
        ([write(1, 0), read(0, 1, 2), read(1, 3, 4)], True),
        ([write(1, 0), write(2, 1, 2), read(1, 3, 4), read(2, 5, 6)], False),
        ([write(1, 0, 5), write(2, 0, 5), read(2, 1, 2), read(1, 3, 4), read(2, 6, 7)], False),
        ([write(1, 0, 5), write(2, 0, 5), read(2, 1, 2), read(1, 3, 4), read(1, 6, 7)], True),
    ],
)
def test_histories(history: list[Operation], *, is_good: bool) -> None:
    assert is_linearizable(history) is is_good
