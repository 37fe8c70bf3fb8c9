"""Shared memory: where things lie, doorbells and phases; and what queues may have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.efa.abi import memory

DEPTHS = st.integers(0, 15).map(lambda power: 1 << power)


def test_status_memfd() -> None:
    assert (memory.NEED_KICK_OFFSET, memory.CARD_STATE_OFFSET, memory.AENQ_OFFSET) == (0, 4, 4096)
    assert memory.STATUS_BYTES == 4096 + 64 * 64
    assert [state.value for state in memory.CardState] == [0, 1, 2]


@pytest.mark.parametrize(
    ("sq_depth", "wqe_bytes", "rq_depth", "rq_offset", "size"),
    [
        (4096, 64, 32768, 262144, 262144 + 524288),
        (2048, 128, 16, 262144, 266240),
        (16, 64, 16, 4096, 8192),
        (16, 64, 0, 4096, 4096),
        (0, 64, 16, 0, 4096),
        (0, 64, 0, 0, 4096),
    ],
)
def test_ring_memfd(sq_depth: int, wqe_bytes: int, rq_depth: int, rq_offset: int, size: int) -> None:
    assert memory.SQ_OFFSET == 0
    assert memory.rq_offset(sq_depth, wqe_bytes=wqe_bytes) == rq_offset
    assert memory.ring_bytes(sq_depth=sq_depth, wqe_bytes=wqe_bytes, rq_depth=rq_depth) == size


def test_cq_memfd() -> None:
    assert memory.cq_bytes(32768, entry_bytes=32) == 1 << 20
    assert memory.cq_bytes(1, entry_bytes=16) == 4096


@given(max_qp=st.integers(1, 100), max_cq=st.integers(1, 100))
def test_doorbells_are_apart(max_qp: int, max_cq: int) -> None:
    offsets = [
        offset(slot) for slot in range(max_qp) for offset in (memory.sq_doorbell_offset, memory.rq_doorbell_offset)
    ]
    offsets += [memory.cq_doorbell_offset(slot, max_qp=max_qp) for slot in range(max_cq)]
    assert sorted(offsets) == list(range(0, 4 * len(offsets), 4))
    size = memory.uar_bytes(max_qp=max_qp, max_cq=max_cq)
    assert max(offsets) + 4 <= size < max(offsets) + 4 + 4096
    assert size % 4096 == 0


def test_cq_doorbell__bits() -> None:
    assert memory.cq_doorbell(0xABCD) == 0xABCD
    assert memory.cq_doorbell(0x1ABCD, cmd_sn=2, arm=True) == 1 << 31 | 2 << 29 | 0xABCD
    assert memory.cq_doorbell(0, cmd_sn=7) == 3 << 29


@given(consumer=st.integers(0, 1 << 20), cmd_sn=st.integers(0, 9), arm=st.booleans())
def test_cq_doorbell__round_trip(consumer: int, cmd_sn: int, *, arm: bool) -> None:
    word = memory.cq_doorbell(consumer, cmd_sn=cmd_sn, arm=arm)
    assert memory.parse_cq_doorbell(word) == (consumer % 65536, cmd_sn % 4, arm)


@given(word=st.integers(0, (1 << 32) - 1))
def test_cq_doorbell__every_word_is_one(word: int) -> None:
    doorbell = memory.parse_cq_doorbell(word)
    assert memory.cq_doorbell(doorbell.consumer, cmd_sn=doorbell.cmd_sn, arm=doorbell.arm) == word & 0xE000FFFF


def test_phases() -> None:
    assert [memory.ring_phase(counter, depth=2) for counter in range(6)] == [1, 1, 0, 0, 1, 1]
    assert [memory.sq_phase(counter, depth=2) for counter in range(6)] == [0, 0, 1, 1, 0, 0]


@given(counter=st.integers(0, 1 << 20), depth=DEPTHS)
def test_phases__survive_the_wrap_of_a_counter(counter: int, depth: int) -> None:
    assert memory.ring_phase(counter, depth=depth) == memory.ring_phase(counter & memory.COUNTER_MASK, depth=depth)
    assert memory.sq_phase(counter, depth=depth) == memory.sq_phase(counter & memory.COUNTER_MASK, depth=depth)
