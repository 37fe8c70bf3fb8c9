"""nitro_emu.perf.bandwidth: memory, and what a comparison sees. Whole runs: tests/nitro_emu/cli/test_perf_tools.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nitro_emu.perf import pattern
from nitro_emu.perf.bandwidth import MAX_SLOTS_BYTES, Stream, room_for
from nitro_emu.perf.plan import MAX_BYTES, Operation, PerfError, Plan, Tool

SLOTS, SIZE = 4, 100


def plan_of(operation: Operation, *, size_bytes: int = SIZE, depth: int = SLOTS, check: bool = True) -> Plan:
    return Plan(Tool.BANDWIDTH, operation, [size_bytes], iterations=100, depth=depth, check=check)


@pytest.fixture
def written() -> tuple[Stream, Any]:
    """A server, and its memory, after a round of WRITEs that starts with 7."""
    payload = np.zeros(SLOTS * SIZE, np.uint8)
    for slot in range(SLOTS):
        pattern.fill(payload[slot * SIZE : (slot + 1) * SIZE], start=7 + slot)
    endpoint: Any = SimpleNamespace(payload=payload)
    return Stream(endpoint, plan_of(Operation.WRITE)), payload


def test_verify_a_round(written: tuple[Stream, Any]) -> None:
    written[0].verify(SLOTS, size_bytes=SIZE, start=7)


def test_verify_sees_any_wrong_byte(written: tuple[Stream, Any]) -> None:
    server, payload = written
    payload[3 * SIZE + 99] ^= 0x80
    server.verify(SLOTS - 1, size_bytes=SIZE, start=7)
    with pytest.raises(PerfError, match="payload is wrong: byte 99 of 100"):
        server.verify(SLOTS, size_bytes=SIZE, start=7)


def test_verify_sees_the_round_before(written: tuple[Stream, Any]) -> None:
    with pytest.raises(PerfError, match="payload is wrong"):
        written[0].verify(SLOTS, size_bytes=SIZE, start=8)


def test_room() -> None:
    assert room_for(plan_of(Operation.WRITE, check=False)).payload_bytes == SIZE
    assert room_for(plan_of(Operation.WRITE)).payload_bytes == SLOTS * SIZE
    assert room_for(plan_of(Operation.READ, size_bytes=MAX_BYTES, depth=2048)).payload_bytes == MAX_SLOTS_BYTES
    sends = room_for(plan_of(Operation.SEND))
    assert (sends.sends, sends.receives, sends.payload_bytes) == (SLOTS, 4 * SLOTS, 4 * SLOTS * SIZE)
    assert room_for(plan_of(Operation.SEND, depth=2048)).receives == 2048
