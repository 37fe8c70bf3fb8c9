"""srd.io.placement_predictor: a correctly predicted train stays at its target; every other is copied back intact."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from devmem.region import Region
from srd.io.placement_predictor import PLACED
from srd.io.rx_memory import RxBatch
from srd.proto.events import PlacementHint, TargetCopy
from srd.proto.wire.data import HEADER_BYTES, Burst, Opcode, ReceivedBurst, write_headers
from tests.srd.io.exchange import Receiver, Source, content, source, to_copy

SEED = 19
CONTEXT = 0x1122334455667788
SEGMENT = 8916
TRAIN_BYTES = 7 * SEGMENT  # the payload of one GSO datagram
START = 5000  # of the write, in its registration


@pytest.fixture
def target() -> Iterator[Region]:
    with Region(40 * TRAIN_BYTES, name="test-registered") as made:
        made.array[:] = 0xEE
        yield made


class WriteExchange:
    """A source that writes, a receiver that predicts, and the core's copies to the target."""

    def __init__(self, one: Source, two: Receiver, target: Region) -> None:
        self.one, self.two, self.target = one, two, target
        self.payload = content(20 * TRAIN_BYTES, seed=SEED)
        one.fill(self.payload[: 1 << 20])
        two.queue.predictor.context = CONTEXT

    def burst(self, train: int, **changes: object) -> Burst:
        made = self.one.burst(
            self.two.address, message=7, offset=train * TRAIN_BYTES, size_bytes=TRAIN_BYTES, length=20 * TRAIN_BYTES,
            segment_bytes=SEGMENT,
        )  # fmt: skip
        return replace(made, flags=Opcode.WRITE, offset=START + train * TRAIN_BYTES, **changes)  # type: ignore[arg-type]

    def expect(self, train: int, *, length: int = 12 * TRAIN_BYTES) -> None:
        """Set the core's hint for the time when all before `train` has landed."""
        target = self.target.address + train * TRAIN_BYTES
        self.two.queue.predictor.set_hint(
            PlacementHint(CONTEXT, 7, Opcode.WRITE, START + train * TRAIN_BYTES, target, length)
        )

    def send(self, *bursts: Burst) -> list[ReceivedBurst]:
        """Send one datagram for each burst, in this order; return what arrived."""
        before = len(self.two.bursts)
        for burst in bursts:
            self.one.transmitter.add(burst)
        assert self.one.transmitter.flush(self.one.socket)
        self.two.receive(packets=self.two.packets + sum(burst.count for burst in bursts))
        return self.two.bursts[before:]

    def place(self, arrived: list[ReceivedBurst]) -> None:
        for received in arrived:
            target = self.target.address + received.offset - START
            copy = TargetCopy(target, received.payload_offset, received.payload_bytes)
            self.two.queue.commit(RxBatch(), to_copy(copy))

    def landed(self, train: int) -> bool:
        lies = self.target.array[train * TRAIN_BYTES : (train + 1) * TRAIN_BYTES].tobytes()
        return lies == self.payload[train * TRAIN_BYTES : (train + 1) * TRAIN_BYTES]

    def untouched(self, first: int) -> bool:
        return bool((self.target.array[first * TRAIN_BYTES :] == 0xEE).all())


@pytest.fixture
def exchange(target: Region) -> Iterator[WriteExchange]:
    with source() as one, Receiver() as two:
        yield WriteExchange(one, two, target)


def test_hit__needs_no_copy(exchange: WriteExchange) -> None:
    exchange.expect(0)
    arrived = exchange.send(*(exchange.burst(train) for train in range(5)))
    assert all(received.payload_offset & PLACED for received in arrived)
    assert all(exchange.landed(train) for train in range(5))
    exchange.place(arrived)
    assert exchange.two.queue.bytes_copied == 0
    assert (exchange.two.queue.predictor.hit_bytes, exchange.two.queue.predictor.miss_bytes) == (5 * TRAIN_BYTES, 0)
    assert exchange.untouched(5)


@pytest.mark.parametrize("seed", range(8))
def test_miss__is_copied_back_and_then_to_its_target(exchange: WriteExchange, seed: int) -> None:
    """In any order each train ends at its target, and no memory beyond the hint is written."""
    order = list(range(10))
    random.Random(seed).shuffle(order)
    exchange.expect(0, length=10 * TRAIN_BYTES)
    exchange.place(exchange.send(*(exchange.burst(train) for train in order)))
    assert all(exchange.landed(train) for train in range(10)), f"seed {seed}"
    assert exchange.untouched(10)
    prediction, queue = exchange.two.queue.predictor, exchange.two.queue
    assert prediction.hit_bytes == sum(TRAIN_BYTES for at, train in enumerate(order) if at == train)
    assert queue.bytes_copied >= 2 * prediction.miss_bytes, "back, and to its target"


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
def test_miss__data_of_another_target_does_not_stay(exchange: WriteExchange, changes: dict[str, Any]) -> None:
    exchange.expect(0)
    burst = replace(exchange.burst(0), **changes)
    (received,) = exchange.send(burst)
    assert not received.payload_offset & PLACED
    assert exchange.two.payload(received) == exchange.payload[:TRAIN_BYTES]
    assert exchange.two.queue.predictor.miss_bytes == TRAIN_BYTES


def test_miss__two_bursts_in_one_train(exchange: WriteExchange) -> None:
    """GRO joins datagrams of equal size, whatever their headers: the second burst may have any target."""
    exchange.expect(0)
    first = replace(exchange.burst(0), count=3, payload_bytes=3 * SEGMENT)
    other = replace(exchange.burst(5), count=4, payload_bytes=4 * SEGMENT, message=9, flags=Opcode.SEND)
    headers = bytearray()
    for burst in (first, other):
        packed = bytearray(burst.count * HEADER_BYTES)
        write_headers(burst, out=memoryview(packed))
        start = burst.payload_offset - exchange.one.region.address
        for index in range(burst.count):
            headers += packed[index * HEADER_BYTES : (index + 1) * HEADER_BYTES]
            headers += exchange.payload[start + index * SEGMENT : start + (index + 1) * SEGMENT]
    exchange.one.send_train(exchange.two.address, bytes(headers), segment_bytes=SEGMENT + HEADER_BYTES)
    exchange.two.receive(packets=7)
    assert [received.count for received in exchange.two.bursts] == [3, 4]
    assert not any(received.payload_offset & PLACED for received in exchange.two.bursts)
    assert exchange.two.payload(exchange.two.bursts[1]) == exchange.payload[5 * TRAIN_BYTES :][: 4 * SEGMENT]


def test_aim__only_whole_trains_and_never_beyond(exchange: WriteExchange) -> None:
    exchange.expect(0, length=3 * TRAIN_BYTES - 1)
    arrived = exchange.send(*(exchange.burst(train) for train in range(4)))
    assert arrived[0].payload_offset & PLACED
    assert arrived[0].count == 14, "two contiguous trains at their target"
    assert not any(received.payload_offset & PLACED for received in arrived[1:])
    assert exchange.untouched(2)
    exchange.place(arrived)
    assert all(exchange.landed(train) for train in range(4))


def test_aim__fewer_slots_after_a_miss_and_more_after_hits(exchange: WriteExchange) -> None:
    exchange.expect(0)
    exchange.place(exchange.send(exchange.burst(1), exchange.burst(0)))
    aimed = []
    for first in (2, 3, 5):
        exchange.expect(first)
        arrived = exchange.send(*(exchange.burst(first + index) for index in range(5)))
        exchange.place(arrived)
        aimed.append(sum(received.count for received in arrived if received.payload_offset & PLACED) // 7)
    assert aimed == [1, 2, 4]
    assert all(exchange.landed(train) for train in range(10))


def test_aim__once_for_each_hint(exchange: WriteExchange) -> None:
    exchange.expect(0)
    exchange.send(exchange.burst(0))
    (received,) = exchange.send(exchange.burst(1))
    assert not received.payload_offset & PLACED


def test_clear_hint__ends_the_prediction(exchange: WriteExchange) -> None:
    exchange.expect(0)
    exchange.two.queue.predictor.clear_hint()
    (received,) = exchange.send(exchange.burst(0))
    assert not received.payload_offset & PLACED
    assert exchange.untouched(0)


def test_set_hint__only_of_the_peer_of_the_queue(exchange: WriteExchange) -> None:
    exchange.two.queue.predictor.context = CONTEXT + 1
    exchange.expect(0)
    exchange.send(exchange.burst(0))
    assert exchange.untouched(0)


def test_control_packets__are_read_though_slots_were_aimed(exchange: WriteExchange) -> None:
    exchange.expect(0)
    exchange.one.socket.sendto(b"\1\2" + bytes(98), exchange.two.address)
    exchange.two.receive(controls=1)
    assert exchange.two.controls[0][0] == b"\1\2" + bytes(98)


def test_no_memory__a_hit_needs_none(exchange: WriteExchange) -> None:
    while exchange.two.pool.free_chunks or not exchange.two.buffers.is_scratch(0):
        burst = exchange.one.burst(
            exchange.two.address, message=1, offset=0, size_bytes=TRAIN_BYTES, length=TRAIN_BYTES, segment_bytes=SEGMENT
        )
        exchange.send(burst)
    exchange.expect(0)
    (received,) = exchange.send(exchange.burst(0))
    assert received.payload_offset & PLACED
    assert exchange.landed(0)
