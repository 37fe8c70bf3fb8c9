"""The whole contract, by seed: requests of every kind, valid and invalid, cancelled, refused, dropped, delayed.

Each request completes exactly once. The bytes of a successful one are in memory. A send arrives at most once. No other
memory is written. In the end neither end keeps state, and all credit is granted again.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from netns.netem.shape import Shape
from srd.proto.wire.status import Status
from tests.simulation import Conditions, content, received, release
from tests.srd.proto.contract import KEY_B, MIB, SIZE, START_B, Pair

REQUESTS = 80
ROOM = SIZE // REQUESTS
"""Each request's own bytes of the registrations."""
EXPECTED = {
    Status.OK,
    Status.FLUSHED,
    Status.REMOTE_ERROR_BAD_ADDRESS,
    Status.REMOTE_ERROR_RNR,
    Status.LOCAL_ERROR_UNRESP_REMOTE,
}


class Run:
    """A pair under a seed's conditions; `kinds` and `lengths` say what each request is."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.pair = Pair(
            seed=seed,
            shape=Shape(delay_us=500, loss_percent=rng.choice([0, 1, 10]), rate_bps=200_000_000, limit_packets=200),
            conditions=Conditions(duplicate=rng.choice([0, 0.1]), reorder_s=rng.choice([0, 0.002])),
            receive_window_bytes=MIB,
            max_message_bytes=MIB,
            window_packets=rng.choice([64, 4096]),
            rnr_retry=rng.choice([2, 6, 7]),
            request_timeout_s=rng.choice([1.5, 300.0]),
        )
        self.kinds: list[str] = []
        self.lengths: list[int] = []
        self.bad: set[int] = set()
        self.withdrawn = False
        self.released: set[int] = set()

    def post(self) -> None:
        """Post one more request, to its own bytes; one in ten with a bad key."""
        number = len(self.kinds)
        length = self.rng.choice([0, 1, 5000, ROOM // 2, ROOM])
        kind = self.rng.choice(["send", "write", "read"])
        at, key = number * ROOM, KEY_B
        if kind != "send" and self.rng.random() < 0.1:
            self.bad.add(number)
            key = self.rng.getrandbits(64)
        if kind == "send":
            self.pair.send(number, length=length, at=number, immediate=number)
        elif kind == "write":
            self.pair.write(number, length=length, at=number, offset=at, key=key, immediate=number)
        else:
            self.pair.read(number, length=length, offset=at, to=at, key=key)
        self.kinds.append(kind)
        self.lengths.append(length)

    def disturb(self) -> None:
        """Cancel, deregister, or stop the receiver, at random."""
        dice = self.rng.random()
        if dice < 0.3:
            self.pair.cancel(self.rng.randrange(len(self.kinds)))
        elif dice < 0.4:
            self.pair.b.full = not self.pair.b.full
        elif dice < 0.42:
            self.withdrawn = True
            self.pair.b.keys.ranges.pop(KEY_B, None)
            self.pair.b.core.on_deregistered(KEY_B.__eq__, now=self.pair.network.now)

    def consume(self) -> bool:
        """Check and release what has arrived; return whether every request has ended."""
        for message in received(self.pair.b):
            if message.message not in self.released:
                number = message.immediate
                assert number is not None
                assert self.kinds[number] == "send"
                expected = self.pair.a.region[number : number + self.lengths[number]].tobytes()
                assert content(self.pair.b, message.extents) == expected
                self.released.add(message.message)
                release(self.pair.b, message, now=self.pair.network.now)
        return len(self.pair.statuses()) == len(self.kinds) == REQUESTS

    def run_schedule(self) -> None:
        while len(self.kinds) < REQUESTS:
            for _ in range(self.rng.randrange(1, 10)):
                if len(self.kinds) < REQUESTS:
                    self.post()
            self.pair.network.run(seconds=self.rng.choice([0.0001, 0.002, 0.05]))
            if self.rng.random() < 0.5:
                self.disturb()
            if self.rng.random() < 0.7:
                self.consume()
        self.pair.b.full = False
        self.pair.network.run(until=self.consume, seconds=30)
        assert len(self.pair.statuses()) == REQUESTS, "a request has not completed"
        self.pair.network.run(until=lambda: not self.consume(), seconds=3)


@pytest.mark.parametrize("seed", range(40))
def test_contract(seed: int) -> None:
    run = Run(seed)
    run.run_schedule()
    pair, statuses = run.pair, run.pair.statuses()
    assert set(statuses.values()) <= EXPECTED
    arrived = Counter(message.immediate for message in received(pair.b))
    notified = Counter(immediate for _, immediate in pair.received_writes())
    assert max(arrived.values(), default=1) == max(notified.values(), default=1) == 1, "at most once"
    for number, (kind, length) in enumerate(zip(run.kinds, run.lengths, strict=True)):
        at, status = number * ROOM, statuses[number]
        if status is Status.REMOTE_ERROR_BAD_ADDRESS:
            assert number in run.bad or run.withdrawn
        if number in run.bad:
            assert status is not Status.OK
        if status is not Status.OK:
            continue
        sent = pair.a.region[number : number + length].tobytes()
        if kind == "send":
            assert arrived[number] == 1
        elif kind == "write":
            assert notified[number] == 1
            assert pair.written(at, length) == sent
        else:
            assert pair.fetched(at, length) == pair.b.region[START_B + at : START_B + at + length].tobytes()
    spans = [(number * ROOM, run.lengths[number]) for number in range(REQUESTS)]
    assert pair.untouched(pair.b, *(span for span, kind in zip(spans, run.kinds, strict=True) if kind == "write"))
    assert pair.untouched(pair.a, *(span for span, kind in zip(spans, run.kinds, strict=True) if kind == "read"))
    assert pair.is_idle()
    sender = pair.a.core.peer(pair.at_a).sender
    unused = pair.b.core.peer(pair.at_b).receiver.acks.credit_bytes - sender.queue.credit._started_bytes
    assert unused == MIB, "all credit is granted again, and no more"
