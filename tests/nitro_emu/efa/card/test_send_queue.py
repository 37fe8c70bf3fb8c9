"""Send queues: entries are copied once, in rounds of the ring, and as many are in progress as it has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.efa.abi.memory import COUNTER_MASK, sq_phase
from nitro_emu.efa.card.send_queue import CardSendQueue
from nitro_emu.errors import AbiError


class Program:
    """The program's side."""

    def __init__(self, depth: int, *, wqe_bytes: int = 64) -> None:
        self.depth, self.wqe_bytes, self.counter = depth, wqe_bytes, 0
        self.ring = bytearray(depth * wqe_bytes)
        self.queue = CardSendQueue(
            memoryview(self.ring), depth=depth, wqe_bytes=wqe_bytes, doorbell=lambda: self.counter & COUNTER_MASK
        )

    def post(self) -> bytes:
        entry = self.counter.to_bytes(4, "little") * (self.wqe_bytes // 4)
        at = self.counter % self.depth * self.wqe_bytes
        self.ring[at : at + self.wqe_bytes] = entry
        self.counter += 1
        return entry


@given(
    st.sampled_from((1, 2, 8)),
    st.sampled_from((64, 128)),
    st.lists(st.tuples(st.sampled_from(("post", "fetch", "complete")), st.integers(1, 9)), max_size=60),
)
def test_entries_come_once_in_order(depth: int, wqe_bytes: int, steps: list[tuple[str, int]]) -> None:
    program = Program(depth, wqe_bytes=wqe_bytes)
    waiting: list[bytes] = []
    outstanding = fetched = 0
    for what, wanted in steps:
        if what == "post":
            waiting += [program.post() for _ in range(min(wanted, depth - len(waiting)))]
        elif what == "complete":
            count = min(wanted, outstanding)
            program.queue.complete(count)
            outstanding -= count
        else:
            assert program.queue.phase == sq_phase(fetched, depth=depth)
            most = min(wanted, len(waiting), depth - outstanding, depth - fetched % depth)
            assert program.queue.fetch(wanted) == b"".join(waiting[:most]), "of one round of the ring"
            del waiting[:most]
            outstanding, fetched = outstanding + most, fetched + most
        assert program.queue.waiting == len(waiting)
        assert program.queue.is_idle is (not outstanding)


def test_what_is_written_after_the_copy_has_no_effect() -> None:
    program = Program(4)
    entry = program.post()
    raw = program.queue.fetch(4)
    program.ring[:] = b"\xff" * len(program.ring)
    assert raw == entry


def test_a_doorbell_beyond_the_ring_is_refused() -> None:
    program = Program(4)
    program.counter = 5
    with pytest.raises(AbiError):
        program.queue.fetch(1)
    program.counter = -1
    with pytest.raises(AbiError):
        program.queue.waiting  # noqa: B018 - it is the property that raises


def test_the_counter_wraps() -> None:
    program = Program(8)
    for _ in range(3 * 65536 // 8):
        entries = [program.post() for _ in range(8)]
        assert program.queue.fetch(8) == b"".join(entries)
        program.queue.complete(8)


def test_reset_begins_at_the_first_entry() -> None:
    program = Program(4)
    for _ in range(3):
        program.post()
    program.queue.fetch(2)
    program.counter = 0
    program.queue.reset()
    assert program.queue.is_idle
    assert program.queue.fetch(4) == b""
    assert program.queue.fetch(4) == b""
    entry = program.post()
    assert program.queue.fetch(4) == entry
