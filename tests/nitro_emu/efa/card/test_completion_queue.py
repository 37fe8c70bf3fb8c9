"""Completion queues: entries and phases against a model, overruns, and one event for each request for one."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.efa.abi import io
from nitro_emu.efa.abi.io import rx_lane, rx_source_lane, tx_lane
from nitro_emu.efa.abi.memory import cq_doorbell, ring_phase
from nitro_emu.efa.card.completion_queue import CardCompletionQueue
from nitro_emu.efa.card.shared import EventSender
from nitro_emu.efa.verbs import COMPLETION

GID = bytes(range(16))


class Program:
    """The program's side."""

    def __init__(self, depth: int, *, entry_bytes: int = 16, events: EventSender | None = None) -> None:
        self.depth, self.entry_bytes, self.word, self.consumed, self.overruns = depth, entry_bytes, 0, 0, 0
        self.cq = CardCompletionQueue(
            5, slot=0, depth=depth, entry_bytes=entry_bytes, doorbell=lambda: self.word, events=events,
            on_completion=lambda: None, on_overrun=self._on_overrun,
        )  # fmt: skip

    def _on_overrun(self, cq: CardCompletionQueue) -> None:
        assert cq is self.cq
        self.overruns += 1

    def poll(self) -> list[np.void]:
        found: list[np.void] = []
        while self.unread() and len(found) < self.depth:
            at = self.consumed % self.depth * self.entry_bytes
            entry = bytes(self.cq.region[at : at + self.entry_bytes])
            found.append(np.frombuffer(entry.ljust(COMPLETION.itemsize, b"\0"), COMPLETION)[0])
            self.consumed += 1
        self.word = cq_doorbell(self.consumed)
        return found

    def unread(self) -> bool:
        at = self.consumed % self.depth * self.entry_bytes
        return bool(self.cq.region[at + 3] & 1) is bool(ring_phase(self.consumed, depth=self.depth))


@given(
    st.sampled_from((4, 16)),
    st.sampled_from((16, 32)),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 16)), max_size=50),
)
def test_entries_are_those_that_were_stored(depth: int, entry_bytes: int, steps: list[tuple[int, int]]) -> None:
    program = Program(depth, entry_bytes=entry_bytes)
    number = unread = 0
    expected: list[tuple[int, int, int, bytes]] = []
    for kind, wanted in steps:
        if kind == 0:
            assert [(c["req_id"], c["src_qp"], c["immediate"], bytes(c["src_gid"])) for c in program.poll()] == expected
            expected, unread = [], 0
            continue
        count = min(wanted, depth - unread)
        if not count:
            continue
        unread += count
        first = rx_lane(0, status=0, qp_num=7, op=io.SendOp.SEND, length=9, has_imm=True)
        second = rx_source_lane(io.UNKNOWN_AH, src_qp_num=3, immediate=number)
        lanes = np.arange(number, number + count, dtype=np.uint64)
        program.cq.push_many(lanes | np.uint64(first), np.full(count, second, np.uint64), extra=GID)
        expected += [(number + i, 3, number, GID if entry_bytes == 32 else bytes(16)) for i in range(count)]
        number = number + count & 0xFFF
    assert not program.overruns
    program.cq.close()


def test_the_counter_wraps() -> None:
    program = Program(1 << 15)
    lanes = np.full(1 << 15, tx_lane(0, status=0, qp_num=1, op=0), np.uint64)
    for _ in range(5):
        program.cq.push_many(lanes, np.zeros(1 << 15, np.uint64))
        program.consumed += 1 << 15
        program.word = cq_doorbell(program.consumed)
    assert not program.overruns
    program.cq.close()


@pytest.mark.parametrize(("first", "then"), [(4, 1), (0, 5), (2, 3)])
def test_an_overrun_writes_nothing_and_breaks_the_queue(first: int, then: int) -> None:
    program = Program(4)
    lane = tx_lane(1, status=0, qp_num=1, op=0)
    for _ in range(first):
        program.cq.push(lane, 0)
    before = bytes(program.cq.region[:])
    program.cq.push_many(np.full(then, lane, np.uint64), np.zeros(then, np.uint64))
    assert program.cq.is_broken
    assert program.overruns == 1
    if first == 4:
        assert bytes(program.cq.region[:]) == before
    program.poll()
    program.cq.push(lane, 0)
    assert not program.unread(), "it stays broken"
    program.cq.close()


@pytest.mark.parametrize("word", [1, 0xFFFF, 0x7FFF])
def test_a_consumer_that_is_ahead_of_the_producer_is_an_overrun(word: int) -> None:
    program = Program(4)
    program.word = word
    program.cq.push(tx_lane(1, status=0, qp_num=1, op=0), 0)
    assert program.cq.is_broken is (-word & 0xFFFF >= 4)
    program.cq.close()


@pytest.fixture
def events() -> Iterator[EventSender]:
    sender = EventSender()
    yield sender
    sender.close()
    os.close(sender.program_fd)


def taken(events: EventSender) -> int:
    if not select.select([events.program_fd], [], [], 0)[0]:
        return 0
    return len(os.read(events.program_fd, 512)) // 8


def test_one_event_for_each_request(events: EventSender) -> None:
    program = Program(16, events=events)
    lane = tx_lane(1, status=0, qp_num=1, op=0)
    program.cq.push(lane, 0)
    assert taken(events) == 0, "not armed"
    program.poll()
    for cmd_sn in (0, 1, 2, 3, 0):
        program.word = cq_doorbell(program.consumed, cmd_sn=cmd_sn, arm=True)
        program.cq.on_doorbell()
        assert taken(events) == 0, "no completion yet"
        program.cq.push(lane, 0)
        program.cq.push(lane, 0)
        program.cq.on_doorbell()
        assert taken(events) == 1, "one for this request"
        program.poll()
    program.cq.close()


def test_arming_with_completions_that_were_not_consumed_gives_an_event_at_once(events: EventSender) -> None:
    program = Program(16, events=events)
    program.cq.push(tx_lane(1, status=0, qp_num=1, op=0), 0)
    program.word = cq_doorbell(0, arm=True)
    program.cq.on_doorbell()
    assert taken(events) == 1
    program.cq.close()
