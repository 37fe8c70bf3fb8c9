"""Receive queues, against a list: what was posted is reserved in order, taken once, and goes back if it is not used."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nitro_emu.efa.abi import io
from nitro_emu.efa.abi.memory import COUNTER_MASK
from nitro_emu.efa.card.recv_queue import Buffer, CardRecvQueue, PostedReceive
from nitro_emu.errors import AbiError

Named = tuple[int, tuple[Buffer, ...]]


@dataclass
class Program:
    """The program's side of a receive queue."""

    depth: int
    counter: int = 0
    ring: bytearray = field(init=False)
    queue: CardRecvQueue = field(init=False)

    def __post_init__(self) -> None:
        self.ring = bytearray(self.depth * io.RX_DESC_BYTES)
        self.queue = CardRecvQueue(
            memoryview(self.ring), depth=self.depth, doorbell=lambda: self.counter & COUNTER_MASK
        )

    def write(self, raw: bytes) -> None:
        at = self.counter % self.depth * io.RX_DESC_BYTES
        self.ring[at : at + io.RX_DESC_BYTES] = raw
        self.counter += 1

    def post(self, req_id: int, *buffers: tuple[int, int, int]) -> None:
        for index, (address, length, lkey) in enumerate(buffers):
            first, last = index == 0, index == len(buffers) - 1
            self.write(io.pack_rx(req_id=req_id, address=address, length=length, lkey=lkey, first=first, last=last))


def named(requests: Iterable[PostedReceive]) -> list[Named]:
    return [(request.req_id, request.buffers) for request in requests]


class ReceiveQueueMachine(RuleBasedStateMachine):
    """Posts, reserves, takes and gives back at random; a list says what must come out."""

    @initialize(depth=st.sampled_from((1, 2, 4, 16)))
    def start(self, depth: int) -> None:
        self.program = Program(depth)
        self.queue = self.program.queue
        self.posted: deque[Named] = deque()  # not reserved, in order
        self.reserved: list[list[PostedReceive]] = []
        self.unfetched: list[Named] = []
        self.req_id = 0

    @property
    def used(self) -> int:
        held = [*self.posted, *self.unfetched, *(each for requests in self.reserved for each in named(requests))]
        return sum(len(buffers) for _, buffers in held)

    @rule(sizes=st.lists(st.integers(1, 2), max_size=8))
    def post(self, sizes: list[int]) -> None:
        for size in sizes:
            if self.used + size > self.program.depth:
                return
            self.req_id = self.req_id + 1 & 0xFFFF
            buffers = tuple((self.req_id << 20 | index + 1, 100 + self.req_id, 7 + index) for index in range(size))
            self.program.post(self.req_id, *buffers)
            self.unfetched.append((self.req_id, buffers))

    @rule()
    def fetch(self) -> None:
        self.queue.fetch()
        self.posted += self.unfetched
        self.unfetched.clear()

    @precondition(lambda self: self.posted)
    @rule(data=st.data())
    def reserve(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.posted)))
        requests = self.queue.reserve(count)
        assert named(requests) == [self.posted.popleft() for _ in range(count)]
        assert all(request.room == sum(length for _, length, _ in request.buffers) for request in requests)
        self.reserved.append(requests)

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        requests = self.reserved.pop(data.draw(st.integers(0, len(self.reserved) - 1)))
        count = data.draw(st.integers(1, len(requests)))
        self.queue.take(requests[:count])
        if count < len(requests):
            self.reserved.append(requests[count:])

    @precondition(lambda self: self.reserved)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        requests = self.reserved.pop(data.draw(st.integers(0, len(self.reserved) - 1)))
        self.queue.give_back(requests)
        self.posted.extendleft(reversed(named(requests)))

    @rule()
    def take_all(self) -> None:
        assert named(self.queue.take_all()) == list(self.posted)
        self.posted.clear()

    @rule()
    def reset(self) -> None:
        self.program.counter = 0
        self.queue.reset()
        self.posted.clear()
        self.unfetched.clear()
        self.reserved.clear()

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "queue"):
            assert self.queue.available == len(self.posted)


TestReceiveQueueMachine = ReceiveQueueMachine.TestCase


def test_what_is_written_after_the_doorbell_was_looked_at_has_no_effect() -> None:
    program = Program(4)
    program.post(1, (0x1000, 64, 5))
    program.queue.fetch()
    program.ring[:] = b"\xff" * len(program.ring)
    assert named(program.queue.reserve(1)) == [(1, ((0x1000, 64, 5),))]


def test_the_counter_wraps() -> None:
    program = Program(8)
    for number in range(3 * 65536 // 8):
        for _ in range(8):
            program.post(number & 0xFFFF, (1, 1, 1))
        program.queue.fetch()
        assert [request.req_id for request in program.queue.take_all()] == [number & 0xFFFF] * 8


@pytest.mark.parametrize("posted", [0, 1, 4])
def test_more_descriptors_than_are_free_break_the_queue(posted: int) -> None:
    program = Program(4)
    for number in range(posted):
        program.post(number, (1, 1, 1))
    program.queue.fetch()
    program.counter += 5 - posted
    with pytest.raises(AbiError):
        program.queue.fetch()
    assert program.queue.available == posted


FIRST, LAST = io.RX_FIRST, io.RX_LAST


@pytest.mark.parametrize(
    "controls",
    [
        (0,),
        (LAST,),
        (FIRST, FIRST),
        (FIRST, FIRST | LAST),
        (FIRST, 0, LAST),  # three buffers
        (FIRST | LAST, LAST),
        (FIRST | LAST | 1 << 24,),
        (FIRST, LAST | 1 << 29),
    ],
)
def test_wrong_marks_break_the_queue_until_it_is_reset(controls: tuple[int, ...]) -> None:
    program = Program(8)
    for control in controls:
        program.write(io.RX_DESC.pack(1, 1, 1, control))
    with pytest.raises(AbiError):
        program.queue.fetch()
    available = program.queue.available
    program.post(9, (1, 1, 1))
    program.queue.fetch()  # takes nothing, and nothing twice
    assert program.queue.available == available
    program.counter = 0
    program.queue.reset()
    program.post(9, (1, 1, 1))
    program.queue.fetch()
    assert named(program.queue.take_all()) == [(9, ((1, 1, 1),))]


def test_a_request_may_be_posted_in_two_parts() -> None:
    program = Program(4)
    program.write(io.pack_rx(req_id=3, address=1, length=10, lkey=1, last=False))
    program.queue.fetch()
    assert program.queue.available == 0
    program.write(io.pack_rx(req_id=3, address=2, length=20, lkey=1, first=False))
    program.queue.fetch()
    (request,) = program.queue.reserve(1)
    assert (request.req_id, request.room, len(request.buffers)) == (3, 30, 2)
