"""The whole contract, by seed: requests of every kind, valid and invalid, cancelled, refused, dropped, delayed.

Each request completes exactly once. The bytes of a successful one are in memory. A send arrives at most once, and the
destinations are asked for it once. No other memory is written. In the end neither end keeps state, what was taken was
reported, and all credit is granted again.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from netns.netem.shape import Shape
from srd.proto.events import BatchCompletion, Completion, WriteReceived
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest
from tests.simulation import Conditions
from tests.srd.proto.contract import KEY_B, MIB, SIZE, START_B, Pair
from tests.srd.proto.recording_destinations import RNR, RecordingDestinations, landed, reported, statuses_of
from tests.srd.proto.recv.test_responder import BAD_QPN, all_credit_is_unused, is_nack

REQUESTS = 80
ROOM = SIZE // REQUESTS
"""Each request's own bytes of the registrations."""
FIRST_KEY = 1000
"""Of request 0, to which a write also has a registration of its own."""
BATCH = 1_000_000
"""The first request of batch n is BATCH * (n + 1), its key too."""
EXPECTED = {
    Status.OK,
    Status.FLUSHED,
    Status.REMOTE_ERROR_BAD_ADDRESS,
    RNR,
    BAD_QPN,
    Status.LOCAL_ERROR_UNRESP_REMOTE,
}


class Run:
    """A pair under a seed's conditions, with destinations that refuse at random where the seed is odd."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.refuses = seed % 2
        self.destinations = RecordingDestinations(self.decide)
        self.pair = Pair(
            seed=seed,
            destinations=self.destinations,
            shape=Shape(delay_us=500, loss_percent=rng.choice([0, 1, 10]), rate_bps=200_000_000, limit_packets=200),
            conditions=Conditions(duplicate=rng.choice([0, 0.1]), reorder_s=rng.choice([0, 0.002])),
            receive_window_bytes=MIB,
            max_message_bytes=MIB,
            receive_window_messages=rng.choice([40, 16_384]),
            window_packets=rng.choice([64, 4096]),
            rnr_retry=rng.choice([2, 6, 7]),
            request_timeout_s=rng.choice([3.0, 300.0]),
        )
        self.pair.network.joins = True
        nacks_lost = rng.choice([0.0, 0.7])
        self.pair.network.loses = lambda source, packet: is_nack(source, packet) and rng.random() < nacks_lost
        self.posted = 0
        self.lengths: dict[str, dict[int, int]] = {"send": {}, "write": {}, "read": {}}  # by request
        self.places: dict[int, tuple[int, int, int]] = {}  # request, start and length, by message number
        self.next_message = 0
        self.wanted: set[int] = set()
        self.bad: set[int] = set()
        self.withdrawn = False
        self.seen = self.seen_ends = 0  # events of b and of a that were looked at
        self.ended = 0
        self.arrived: dict[int, int] = {}  # deliveries by request

    def decide(self, _key: int, count: int) -> Status | None:
        """Refuse a third; of a burst, more."""
        if self.refuses and self.rng.random() < (0.6 if count > 1 else 0.3):
            return self.rng.choice([RNR, BAD_QPN])
        return None

    def post(self) -> None:
        """Post one more request, or a batch; one read or write in ten has a bad key."""
        number, pair = self.posted, self.pair
        self.posted += 1
        kind, length = (
            self.rng.choice(["send", "write", "read", "batch"]),
            self.rng.choice([0, 1, 5000, ROOM // 2, ROOM]),
        )
        if kind == "batch":
            self.post_batch(BATCH * (number + 1), at=number)
            return
        key, is_bad = FIRST_KEY + number, kind != "send" and self.rng.random() < 0.1
        if is_bad:
            self.bad.add(number)
        if kind == "send":
            pair.send(number, length=length, at=number, key=key)
            self.places[self.next_message] = (number, number, length)
        elif kind == "write":
            if not (is_bad or self.withdrawn):
                pair.b.keys.ranges[key] = (START_B + number * ROOM, ROOM, "w")
            pair.write(number, length=length, at=number, key=key, immediate=number)
        else:
            pair.read(number, length=length, offset=number * ROOM, to=number * ROOM, key=77 if is_bad else KEY_B)
        self.lengths[kind][number] = length
        self.next_message += 1
        self.wanted.add(number)

    def post_batch(self, first: int, *, at: int) -> None:
        count = self.rng.choice([2, 30, 200])
        places = at + np.arange(count, dtype=np.uint64) * 70
        self.pair.a.core.post_batch(self.pair.at_a, BatchRequest(first, places, 64, None, None, first))
        for index in range(count):
            self.places[self.next_message + index] = (first + index, at + index * 70, 64)
        self.next_message += count
        self.wanted |= set(range(first, first + count))

    def disturb(self) -> None:
        """Cancel, deregister, or stop the receiver, at random."""
        dice, number = self.rng.random(), self.rng.randrange(self.posted)
        if dice < 0.3:
            self.pair.cancel(self.rng.choice([number, BATCH * (number + 1)]))
        elif dice < 0.4:
            self.pair.b.full = not self.pair.b.full
        elif dice < 0.42:
            self.withdrawn = True
            self.pair.b.keys.ranges.clear()
            self.pair.b.core.on_deregistered(lambda _: True, now=self.pair.network.now)

    def consume(self) -> bool:
        """Check and release what has arrived; return whether every request has ended."""
        pair, now = self.pair, self.pair.network.now
        fresh, self.seen = pair.b.events[self.seen :], len(pair.b.events)
        earlier, pair.b.events = pair.b.events, fresh
        for number, bytes_ in landed(pair.b):
            request, at, length = self.places[number]
            assert bytes_ == pair.a.region[at : at + length].tobytes()
            self.arrived[request] = self.arrived.get(request, 0) + 1
            pair.b.core.release(pair.at_b, size_bytes=length, messages=1, now=now)
        for event in pair.b.of(WriteReceived):
            self.arrived[event.immediate] = self.arrived.get(event.immediate, 0) + 1
            pair.b.core.release(pair.at_b, size_bytes=0, messages=1, now=now)
        pair.b.events = earlier
        for end in pair.a.events[self.seen_ends :]:
            self.ended += end.count if isinstance(end, BatchCompletion) else isinstance(end, Completion)
        self.seen_ends = len(pair.a.events)
        return self.ended == len(self.wanted)

    def run_schedule(self) -> None:
        while self.posted < REQUESTS:
            for _ in range(min(self.rng.randrange(1, 10), REQUESTS - self.posted)):
                self.post()
            self.pair.network.run(seconds=self.rng.choice([0.0001, 0.002, 0.05]))
            if self.rng.random() < 0.5:
                self.disturb()
            if self.rng.random() < 0.7:
                self.consume()
        self.pair.b.full = False
        self.pair.network.run(until=self.consume, seconds=60)
        assert statuses_of(self.pair.a).keys() == self.wanted, "a request has not ended"
        self.pair.network.run(until=lambda: not self.consume(), seconds=3)


@pytest.mark.parametrize("seed", range(32))
def test_contract(seed: int) -> None:
    run = Run(seed)
    run.run_schedule()
    pair, statuses = run.pair, statuses_of(run.pair.a)
    assert set(statuses.values()) <= EXPECTED
    assert max(run.arrived.values(), default=1) == 1, "at most once"
    check_each(run, statuses)
    check_bytes(run, statuses)
    assert run.destinations.taken - reported(pair.b) == reported(pair.b) - run.destinations.taken == {}
    assert pair.is_idle()
    assert not pair.b.core.peer(pair.at_b).receiver.has_refused
    assert all_credit_is_unused(pair)


def check_each(run: Run, statuses: dict[int, Status]) -> None:
    """What each status says of a request is so."""
    reads, taken, refused = run.lengths["read"], run.destinations.taken, run.destinations.refused
    for request, status in statuses.items():
        if status is Status.OK:
            assert request not in run.bad
            assert request in reads or run.arrived[request] == 1
        elif status is BAD_QPN:
            assert request not in run.arrived
        elif status is Status.REMOTE_ERROR_BAD_ADDRESS:
            assert request in run.bad or run.withdrawn
    for request in run.lengths["send"] | run.lengths["write"]:
        key = FIRST_KEY + request
        assert taken[key] + refused[key] <= 1, "asked once"
        if statuses[request] is BAD_QPN:
            assert (taken[key], refused[key]) == (0, 1)


def check_bytes(run: Run, statuses: dict[int, Status]) -> None:
    """What was written and read is right, and nothing else was changed."""
    pair = run.pair
    for request, length in run.lengths["write"].items():
        if statuses[request] is Status.OK:
            assert pair.written(request * ROOM, length) == pair.a.region[request : request + length].tobytes()
    for request, length in run.lengths["read"].items():
        source = START_B + request * ROOM
        if statuses[request] is Status.OK:
            assert pair.fetched(request * ROOM, length) == pair.b.region[source : source + length].tobytes()
    for node, kind in ((pair.b, "write"), (pair.a, "read")):
        assert pair.untouched(node, *((number * ROOM, length) for number, length in run.lengths[kind].items()))
