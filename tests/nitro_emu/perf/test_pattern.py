"""nitro_emu.perf.pattern: every single wrong byte is seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.perf import pattern
from nitro_emu.perf.plan import MAX_BYTES, PerfError


@given(size=st.integers(1, 2000), start=st.integers(0, 10**6))
def test_what_was_filled_is_right(size: int, start: int) -> None:
    payload = np.zeros(size, np.uint8)
    pattern.fill(payload, start=start)
    pattern.check(payload, start=start)
    pattern.check(payload)


def test_largest_payload() -> None:
    payload = np.zeros(MAX_BYTES, np.uint8)
    pattern.fill(payload, start=250)
    pattern.check(payload, start=250)


@given(size=st.integers(2, 2000), data=st.data())
def test_wrong_byte_is_found(size: int, data: st.DataObject) -> None:
    payload = np.zeros(size, np.uint8)
    pattern.fill(payload, start=7)
    wrong = data.draw(st.integers(1, size - 1))
    payload[wrong] ^= 1
    with pytest.raises(PerfError, match=f"payload is wrong: byte {wrong} of {size} is"):
        pattern.check(payload)


@given(first=st.integers(0, 250), second=st.integers(0, 250))
def test_another_message_is_found(first: int, second: int) -> None:
    payload = np.zeros(64, np.uint8)
    pattern.fill(payload, start=first)
    if first != second:
        with pytest.raises(PerfError, match="payload is wrong"):
            pattern.check(payload, start=second)


def test_payload_that_was_never_written() -> None:
    with pytest.raises(PerfError, match="byte 0 is 251, which no message has"):
        pattern.check(np.full(8, pattern.PERIOD, np.uint8))
