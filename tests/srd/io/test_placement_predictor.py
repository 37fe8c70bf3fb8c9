"""srd.io.placement_predictor: what lands where it was aimed stays there if it belongs there, and else is copied back
intact."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from devmem.region import Region
from srd.io.placement_predictor import PLACED
from srd.io.rx import RxBatch
from srd.proto.events import PlacementHint, TargetCopy
from srd.proto.wire.data import HEADER_BYTES, Burst, Opcode, ReceivedBurst, write_headers
from tests.srd.io.exchange import Receiver, Source, content, source, to_copy

SEED = 19
CONTEXT = 0x1122334455667788
SEGMENT = 8916
TRAIN_BYTES = 7 * SEGMENT  # what one datagram of GSO has
START = 5000  # of the write, in its registration


@pytest.fixture
def target() -> Iterator[Region]:
    with Region(40 * TRAIN_BYTES, name="test-registered") as made:
        made.array[:] = 0xEE
        yield made


class Desk:
    """A source that writes, a receiver that predicts, and a core's part of the work: placing what came."""

    def __init__(self, one: Source, two: Receiver, target: Region) -> None:
        self.one, self.two, self.target = one, two, target
        self.payload = content(20 * TRAIN_BYTES, seed=SEED)
        one.fill(self.payload[: 1 << 20])
        two.queue.predictor.context = CONTEXT
        self.runs: list[ReceivedBurst] = []

    def burst(self, train: int, **changes: object) -> Burst:
        made = self.one.burst(
            self.two.address, message=7, offset=train * TRAIN_BYTES, size_bytes=TRAIN_BYTES, length=20 * TRAIN_BYTES,
            segment_bytes=SEGMENT,
        )  # fmt: skip
        return replace(made, flags=Opcode.WRITE, offset=START + train * TRAIN_BYTES, **changes)  # type: ignore[arg-type]

    def expect(self, train: int, *, length: int = 12 * TRAIN_BYTES) -> None:
        """As the core would, when all before `train` has landed."""
        place = self.target.address + train * TRAIN_BYTES
        self.two.queue.predictor.set_hint(
            PlacementHint(CONTEXT, 7, Opcode.WRITE, START + train * TRAIN_BYTES, place, length)
        )

    def send(self, *bursts: Burst) -> list[ReceivedBurst]:
        """Send them as a datagram each, in this order; return what arrived."""
        before = len(self.two.runs)
        for burst in bursts:
            self.one.transmitter.add(burst)
        assert self.one.transmitter.flush(self.one.socket)
        self.two.receive(packets=self.two.packets + sum(burst.count for burst in bursts))
        return self.two.runs[before:]

    def place(self, runs: list[ReceivedBurst]) -> None:
        for run in runs:
            place = self.target.address + run.offset - START
            copy = TargetCopy(place, run.payload_offset, run.payload_bytes)
            self.two.queue.commit(RxBatch(), to_copy(copy))

    def landed(self, train: int) -> bool:
        lies = self.target.array[train * TRAIN_BYTES : (train + 1) * TRAIN_BYTES].tobytes()
        return lies == self.payload[train * TRAIN_BYTES : (train + 1) * TRAIN_BYTES]

    def untouched(self, first: int) -> bool:
        return bool((self.target.array[first * TRAIN_BYTES :] == 0xEE).all())


@pytest.fixture
def desk(target: Region) -> Iterator[Desk]:
    with source() as one, Receiver() as two:
        yield Desk(one, two, target)


def test_right__lies_in_place_without_a_copy(desk: Desk) -> None:
    desk.expect(0)
    runs = desk.send(*(desk.burst(train) for train in range(5)))
    assert all(run.payload_offset & PLACED for run in runs)
    assert all(desk.landed(train) for train in range(5))
    desk.place(runs)
    assert desk.two.queue.bytes_copied == 0
    assert (desk.two.queue.predictor.hit_bytes, desk.two.queue.predictor.miss_bytes) == (5 * TRAIN_BYTES, 0)
    assert desk.untouched(5)


@pytest.mark.parametrize("seed", range(8))
def test_wrong__is_copied_back_and_then_placed(desk: Desk, seed: int) -> None:
    """Any order: each train ends in its place, and nothing lies beyond what was promised."""
    order = list(range(10))
    random.Random(seed).shuffle(order)
    desk.expect(0, length=10 * TRAIN_BYTES)
    desk.place(desk.send(*(desk.burst(train) for train in order)))
    assert all(desk.landed(train) for train in range(10)), f"seed {seed}"
    assert desk.untouched(10)
    prediction, queue = desk.two.queue.predictor, desk.two.queue
    assert prediction.hit_bytes == sum(TRAIN_BYTES for at, train in enumerate(order) if at == train)
    assert queue.bytes_copied >= 2 * prediction.miss_bytes, "back, and to its place"


@pytest.mark.parametrize(
    "changes",
    [
        {"flags": Opcode.SEND},
        {"flags": Opcode.RESPONSE},
        {"message": 8},
        {"offset": START + 1},
        {"context": CONTEXT + 1},
    ],
    ids=str,
)
def test_wrong__what_belongs_elsewhere_does_not_stay(desk: Desk, changes: dict[str, Any]) -> None:
    desk.expect(0)
    burst = replace(desk.burst(0), **changes)
    (run,) = desk.send(burst)
    assert not run.payload_offset & PLACED
    assert desk.two.payload(run) == desk.payload[:TRAIN_BYTES]
    assert desk.two.queue.predictor.miss_bytes == TRAIN_BYTES


def test_wrong__two_bursts_in_one_train(desk: Desk) -> None:
    """GRO joins what is equal in size, whatever its header: the second may belong anywhere."""
    desk.expect(0)
    first = replace(desk.burst(0), count=3, payload_bytes=3 * SEGMENT)
    other = replace(desk.burst(5), count=4, payload_bytes=4 * SEGMENT, message=9, flags=Opcode.SEND)
    headers = bytearray()
    for burst in (first, other):
        packed = bytearray(burst.count * HEADER_BYTES)
        write_headers(burst, out=memoryview(packed))
        start = burst.payload_offset - desk.one.region.address
        for index in range(burst.count):
            headers += packed[index * HEADER_BYTES : (index + 1) * HEADER_BYTES]
            headers += desk.payload[start + index * SEGMENT : start + (index + 1) * SEGMENT]
    desk.one.send_series(desk.two.address, bytes(headers), segment_bytes=SEGMENT + HEADER_BYTES)
    desk.two.receive(packets=7)
    assert [run.count for run in desk.two.runs] == [3, 4]
    assert not any(run.payload_offset & PLACED for run in desk.two.runs)
    assert desk.two.payload(desk.two.runs[1]) == desk.payload[5 * TRAIN_BYTES :][: 4 * SEGMENT]


def test_aim__only_whole_trains_and_never_beyond(desk: Desk) -> None:
    desk.expect(0, length=3 * TRAIN_BYTES - 1)
    runs = desk.send(*(desk.burst(train) for train in range(4)))
    assert runs[0].payload_offset & PLACED
    assert runs[0].count == 14, "two in place, one behind the other"
    assert not any(run.payload_offset & PLACED for run in runs[1:])
    assert desk.untouched(2)
    desk.place(runs)
    assert all(desk.landed(train) for train in range(4))


def test_aim__fewer_slots_after_a_wrong_guess_and_more_after_right_ones(desk: Desk) -> None:
    desk.expect(0)
    desk.place(desk.send(desk.burst(1), desk.burst(0)))
    aimed = []
    for first in (2, 3, 5):
        desk.expect(first)
        runs = desk.send(*(desk.burst(first + index) for index in range(5)))
        desk.place(runs)
        aimed.append(sum(run.count for run in runs if run.payload_offset & PLACED) // 7)
    assert aimed == [1, 2, 4]
    assert all(desk.landed(train) for train in range(10))


def test_aim__once_for_each_hint(desk: Desk) -> None:
    desk.expect(0)
    desk.send(desk.burst(0))
    (run,) = desk.send(desk.burst(1))
    assert not run.payload_offset & PLACED


def test_forget__the_memory_is_its_owners_again(desk: Desk) -> None:
    desk.expect(0)
    desk.two.queue.predictor.clear_hint()
    (run,) = desk.send(desk.burst(0))
    assert not run.payload_offset & PLACED
    assert desk.untouched(0)


def test_expect__only_of_the_peer_that_the_queue_is_for(desk: Desk) -> None:
    desk.two.queue.predictor.context = CONTEXT + 1
    desk.expect(0)
    desk.send(desk.burst(0))
    assert desk.untouched(0)


def test_control_packets__are_read_though_slots_were_aimed(desk: Desk) -> None:
    desk.expect(0)
    desk.one.socket.sendto(b"\1\2" + bytes(98), desk.two.address)
    desk.two.receive(controls=1)
    assert desk.two.controls[0][0] == b"\1\2" + bytes(98)


def test_no_memory__what_is_right_needs_none(desk: Desk) -> None:
    while desk.two.pool.free_chunks or not desk.two.landing.is_scratch(0):
        burst = desk.one.burst(
            desk.two.address, message=1, offset=0, size_bytes=TRAIN_BYTES, length=TRAIN_BYTES, segment_bytes=SEGMENT
        )
        desk.send(burst)
    desk.expect(0)
    (run,) = desk.send(desk.burst(0))
    assert run.payload_offset & PLACED
    assert desk.landed(0)
