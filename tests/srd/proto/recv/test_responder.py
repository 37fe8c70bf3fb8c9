"""Who takes a message: sends and notified writes that `Destinations` take or refuse, on good and bad networks."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from netns.netem.shape import Shape
from srd.proto.events import BatchCompletion, Completion, Extent, MessageAborted, MessagesReceived, WriteReceived
from srd.proto.wire.data import IMMEDIATE, Opcode, PacketType, ReceivedBurst, single_packet
from srd.proto.wire.status import REFUSALS, Status
from srd.proto.work_request import BatchRequest
from tests.simulation import Conditions, Packet, content, ended, received
from tests.srd.proto.contract import KEY_B, MIB, SIZE, START_B, Pair
from tests.srd.proto.recording_destinations import RNR, RecordingDestinations, landed, reported, statuses_of

BAD_QPN = Status.REMOTE_ERROR_BAD_DEST_QPN
SLOW = Shape(delay_us=500, rate_bps=10_000_000, limit_packets=200)
LENGTHS = [0, 100, 300_000]
REFUSED_KEY, TAKEN_KEY = 0xBAD, 0x600D


def refuses(status: Status, *keys: int) -> RecordingDestinations:
    """Destinations that refuse these keys."""
    return RecordingDestinations(lambda key, _: status if key in keys else None)


def refuses_share(share: float) -> RecordingDestinations:
    """Destinations that refuse this share of what they are asked for."""
    rng = Random(1)
    return RecordingDestinations(lambda _key, _count: RNR if rng.random() < share else None)


def deciding(destinations: RecordingDestinations | None = None, **options: Any) -> tuple[RecordingDestinations, Pair]:
    """Return such destinations, by default those that take everything, and a pair whose responder has them."""
    made = destinations or RecordingDestinations()
    return made, Pair(destinations=made, **options)


def has_ended(pair: Pair, *, count: int) -> bool:
    """Whether so many requests have ended."""
    return len(statuses_of(pair.a)) == count


def all_credit_is_unused(pair: Pair) -> bool:
    """Whether the requester may start as much as at first: nothing was delivered, and no credit is lost."""
    receiver, sender = pair.b.core.peer(pair.at_b).receiver, pair.a.core.peer(pair.at_a).sender
    config, credit = pair.network.config, sender.queue.credit
    return (
        receiver.acks.credit_bytes - credit._started_bytes == config.receive_window_bytes
        and receiver.acks.credit_messages - credit._started_messages == config.receive_window_messages
    )


def is_nack(direction: str, packet: Packet) -> bool:
    return direction == "b" and packet[0][1] == PacketType.NACK


# -- a send ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("status", sorted(REFUSALS))
def test_send__refused_by_the_inbox(status: Status, length: int) -> None:
    destinations, pair = deciding(refuses(status, REFUSED_KEY))
    pair.send(1, length=length, key=REFUSED_KEY)
    assert pair.run(1) == {1: status}
    assert destinations.asked == [(REFUSED_KEY, pair.at_b, length, 1)], "once, and not again with its retransmissions"
    assert not received(pair.b)
    assert not pair.b.of(MessageAborted)
    assert pair.b.held_bytes == 0
    assert all_credit_is_unused(pair)
    pair.send(2, length=length, at=7, key=TAKEN_KEY)
    pair.run(2)
    (message,) = received(pair.b)
    assert content(pair.b, message.extents) == pair.a.region[7 : 7 + length].tobytes()
    assert message.key == TAKEN_KEY
    assert pair.statuses()[2] is Status.OK
    assert pair.is_idle()


def test_send__a_status_that_is_no_refusal() -> None:
    """It has no number that a requester knows."""
    pair = Pair(destinations=refuses(Status.LOCAL_ERROR_INVALID_AH, 1))
    pair.send(1, length=10, key=1)
    assert pair.run(1) == {1: Status.REMOTE_ERROR_BAD_STATUS}


def test_send__is_not_acknowledged_before_it_is_taken() -> None:
    """When the destinations are asked, no ack covers the message."""
    pair = Pair()
    receiver = pair.b.core.peer(pair.at_b).receiver
    covered: list[bool] = []

    def decide(_key: int, _count: int) -> Status | None:
        covered.append(0 in receiver._window)
        return None

    responder = pair.b.core.peer(pair.at_b).responder
    responder._shared.destinations = RecordingDestinations(decide)
    pair.send(1, length=100)
    pair.run(1)
    assert covered == [False]
    assert 0 in receiver._window


def test_send__longer_than_accepted_is_refused_before_the_inbox() -> None:
    destinations, pair = deciding()
    sender = pair.a.core.peer(pair.at_a).sender
    sender.max_message_bytes = 32 * MIB
    pair.send(1, length=17 * MIB, key=1)
    assert pair.run(1) == {1: Status.REMOTE_ERROR_BAD_LENGTH}
    assert destinations.asked == []


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("batched", [False, True])
def test_send__refusals_are_no_congestion(share: float, *, batched: bool) -> None:
    """What was refused had arrived: no path is suspected of a small MTU, and the window does not collapse."""
    windows = []
    for refused in (0.0, share):
        pair = Pair(destinations=refuses_share(refused))
        pair.network.joins = True
        sender = pair.a.core.peer(pair.at_a).sender
        if batched:
            post_batch(pair, first=0, count=500, key=1, length=8916)
        else:
            for request in range(500):
                pair.send(request, length=8916, key=1)
        pair.network.run(until=partial(has_ended, pair, count=500), seconds=5)
        windows.append(sender.controller.window_bytes)
        assert not any(path.size_losses.packets or path.counters.timeouts for path in sender.paths)
        pair.network.run(seconds=0.2)
        assert pair.is_idle()
    assert windows[1] > windows[0] / 2


# -- taken, and ended early -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["send", "write"])
def test_cancel__of_what_was_taken_is_reported_with_its_key(kind: str) -> None:
    destinations, pair = deciding(shape=SLOW)
    key = KEY_B if kind == "write" else TAKEN_KEY
    getattr(pair, kind)(1, length=4 * MIB, key=key, immediate=3)
    pair.network.run(seconds=0.2)
    assert destinations.taken == {key: 1}
    pair.cancel(1)
    assert pair.run(1) == {1: Status.FLUSHED}
    pair.network.run(seconds=1)
    (aborted,) = pair.b.of(MessageAborted)
    assert aborted.key == key
    assert (sum(extent.length for extent in aborted.released) > 0) == (kind == "send")
    assert not received(pair.b)
    assert not pair.b.of(WriteReceived)
    assert pair.is_idle()
    assert all_credit_is_unused(pair)


@pytest.mark.parametrize("kind", ["write", "read"])
def test_cancel__of_what_no_inbox_took_is_not_reported(kind: str) -> None:
    """A write without immediate, and the answer to a read, take no receive buffer that could be given back."""
    pair = Pair(destinations=RecordingDestinations(), shape=SLOW)
    getattr(pair, kind)(1, length=4 * MIB)
    pair.network.run(seconds=0.2)
    pair.cancel(1)
    pair.run(1)
    pair.network.run(seconds=1)
    assert not pair.a.of(MessageAborted)
    assert not pair.b.of(MessageAborted)
    assert pair.is_idle()


@pytest.mark.parametrize("kind", ["send", "write"])
def test_discard__of_what_was_taken_is_reported_once(kind: str) -> None:
    """Its sender stops in the middle; after the timeout it is discarded here, and then turned ABORTED there."""
    destinations, pair = deciding(shape=SLOW, reassembly_timeout_s=0.3)
    key = KEY_B if kind == "write" else TAKEN_KEY
    getattr(pair, kind)(1, length=4 * MIB, key=key, immediate=3)
    pair.network.run(seconds=0.2)
    pair.network.loses = lambda direction, packet: direction == "a" and len(packet[1]) > 0
    pair.network.run(until=lambda: bool(pair.b.of(MessageAborted)), seconds=5)
    pair.network.loses = None
    assert pair.run(1) == {1: RNR}
    (aborted,) = pair.b.of(MessageAborted)
    assert (aborted.key, aborted.length) == (key, 4 * MIB)
    assert aborted.opcode == (Opcode.WRITE if kind == "write" else Opcode.SEND)
    assert reported(pair.b) == destinations.taken
    assert pair.b.held_bytes == 0
    assert all_credit_is_unused(pair)


def test_end__of_the_peer_ends_what_was_taken() -> None:
    destinations, pair = deciding(shape=SLOW)
    pair.send(1, length=4 * MIB, key=TAKEN_KEY)
    pair.network.run(seconds=0.2)
    pair.a.alive = False
    pair.network.run(until=lambda: bool(ended(pair.b)), seconds=5)
    assert destinations.taken == {TAKEN_KEY: 1}
    assert reported(pair.b) == {}
    (end,) = ended(pair.b)
    assert sum(extent.length for extent in end.released) > 0
    assert pair.b.held_bytes == 0


# -- a write with immediate, and a read -----------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("status", [RNR, BAD_QPN])
def test_write__refused_by_the_inbox_leaves_memory_untouched(status: Status, length: int) -> None:
    destinations, pair = deciding(refuses(status, KEY_B), shape=Shape(delay_us=500, loss_percent=2))
    pair.b.keys.ranges[5] = (START_B, SIZE, "w")
    pair.write(1, length=length, immediate=9)
    assert pair.run(1) == {1: status}
    assert pair.untouched(pair.b)
    assert destinations.asked == [(KEY_B, pair.at_b, -1, 1)]
    assert pair.received_writes() == []
    assert not pair.b.of(MessageAborted)
    assert all_credit_is_unused(pair)
    pair.write(2, length=length, immediate=10, key=5)
    pair.run(2)
    assert pair.received_writes() == [(length, 10)]
    assert [event.key for event in pair.b.of(WriteReceived)] == [5]
    assert pair.is_idle()


def test_write__without_immediate_asks_nobody() -> None:
    destinations, pair = deciding(refuses(RNR, KEY_B))
    pair.write(1, length=100_000)
    assert pair.run(1) == {1: Status.OK}
    assert destinations.asked == []


def test_write__taken_and_then_without_its_registration() -> None:
    """The rest is refused with the destinations' reason, and the notification that was taken is given back."""
    destinations, pair = deciding(shape=SLOW)
    destinations.reason = BAD_QPN
    pair.write(1, length=4 * MIB, immediate=3)
    pair.network.run(seconds=0.2)
    del pair.b.keys.ranges[KEY_B]
    assert pair.run(1) == {1: BAD_QPN}
    pair.network.run(seconds=1)
    assert destinations.taken == reported(pair.b) == {KEY_B: 1}
    assert pair.received_writes() == []
    assert pair.is_idle()


@pytest.mark.parametrize("kind", ["write", "read"])
def test_refusal__of_a_bad_range_has_the_status_of_the_inbox(kind: str) -> None:
    destinations, pair = deciding()
    destinations.reason = BAD_QPN
    post = getattr(pair, kind)
    post(1, length=100, offset=SIZE)
    post(2, length=100)
    assert pair.run(1, 2) == {1: BAD_QPN, 2: Status.OK}
    assert set(destinations.reasons_asked) == {KEY_B}
    assert len(destinations.reasons_asked) == 1 or kind == "write", "not for what is allowed"
    assert destinations.asked == []


def test_read__answers_take_turns_by_the_flow_of_the_inbox() -> None:
    """A long answer of one flow delays a short one of another by a burst or two."""
    destinations, pair = deciding(shape=SLOW)
    pair.b.keys.ranges[5] = (START_B, SIZE, "r")
    destinations.flows = {KEY_B: 1, 5: 2}
    pair.read(1, length=4 * MIB)
    pair.read(2, length=10_000, key=5, to=5 * MIB)
    started = pair.network.now
    pair.run(2)
    assert pair.network.now - started < 0.5, "0.8 s would be all of the first"
    assert pair.statuses() == {2: Status.OK}
    pair.run(1)


# -- batches --------------------------------------------------------------------------------------------------------


def post_batch(pair: Pair, *, first: int, count: int, key: int, length: int = 64, immediate: int | None = None) -> None:
    places = np.arange(first, first + count, dtype=np.uint64) * 70
    pair.a.core.post_batch(pair.at_a, BatchRequest(first, places, length, immediate, None, key))


def test_batch__some_are_refused_and_the_others_arrive() -> None:
    """Of the messages that arrive together none is taken, so each is decided on alone."""
    taken = 0

    def decide(_key: int, count: int) -> Status | None:
        nonlocal taken
        if count > 1 or taken >= 5:
            return RNR
        taken += 1
        return None

    destinations, pair = deciding(RecordingDestinations(decide))
    pair.network.joins = True
    post_batch(pair, first=100, count=12, key=77, immediate=4)
    pair.network.run(until=lambda: len(statuses_of(pair.a)) == 12, seconds=5)
    pair.network.run(seconds=0.2)
    assert max(count for *_, count in destinations.asked) > 1, "they did arrive together"
    arrived = landed(pair.b)
    assert len(arrived) == len({number for number, _ in arrived}) == 5
    for number, bytes_ in arrived:
        at = (100 + number) * 70
        assert bytes_ == pair.a.region[at : at + 64].tobytes()
    assert {message.immediate for message in received(pair.b)} == {4}
    statuses = statuses_of(pair.a)
    assert {request - 100 for request, status in statuses.items() if status is Status.OK} == dict(arrived).keys()
    assert set(statuses.values()) == {Status.OK, RNR}
    assert reported(pair.b) == {77: 5}
    assert pair.is_idle()


def test_batch__is_taken_as_a_whole() -> None:
    destinations, pair = deciding()
    pair.network.joins = True
    post_batch(pair, first=0, count=500, key=77)
    pair.network.run(until=lambda: len(statuses_of(pair.a)) == 500, seconds=5)
    assert set(statuses_of(pair.a).values()) == {Status.OK}
    assert destinations.taken == reported(pair.b) == {77: 500}
    assert len(destinations.asked) < 250, "by bursts"
    events = pair.b.of(MessagesReceived)
    assert {event.key for event in events} == {77}
    assert sorted(number for number, _ in landed(pair.b)) == list(range(500))


# -- everything at once ---------------------------------------------------------------------------------------------

REQUESTS = 60
ROOM = SIZE // REQUESTS
BATCH = 1000
"""The first request of batch n is BATCH * (n + 1), its key too."""


class Storm:
    """Sends, notified writes and batches that destinations refuse at random, on a bad network."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.destinations = RecordingDestinations(self.decide)
        self.pair = Pair(
            seed=seed,
            destinations=self.destinations,
            shape=Shape(delay_us=500, loss_percent=rng.choice([0, 2, 10]), rate_bps=200_000_000, limit_packets=200),
            conditions=Conditions(duplicate=rng.choice([0, 0.1]), reorder_s=rng.choice([0, 0.002])),
            receive_window_bytes=MIB,
            max_message_bytes=MIB,
            receive_window_messages=rng.choice([40, 16_384]),
            window_packets=rng.choice([64, 4096]),
            request_timeout_s=rng.choice([3.0, 300.0]),
        )
        self.pair.network.joins = True
        self.nacks_lost = rng.choice([0.0, 0.7])
        self.pair.network.loses = lambda source, packet: is_nack(source, packet) and rng.random() < self.nacks_lost
        self.lengths: dict[int, int] = {}  # of sends and writes, by request
        self.writes: set[int] = set()
        self.places: dict[int, tuple[int, int, int]] = {}  # request, start and length, by message number
        self.next_message = 0
        self.wanted: set[int] = set()
        self.seen = 0  # events of b that were checked
        self.ended = 0  # requests that have ended, and the events of a that say so
        self.seen_ends = 0
        self.arrived: dict[int, int] = {}  # deliveries by request

    def decide(self, _key: int, count: int) -> Status | None:
        """Refuse a third; of a burst, more."""
        if self.rng.random() < (0.6 if count > 1 else 0.3):
            return self.rng.choice([RNR, BAD_QPN])
        return None

    def post(self, number: int) -> None:
        """Post one more request, or one more batch."""
        kind, length = self.rng.choice(["send", "write", "batch"]), self.rng.choice([0, 1, 5000, ROOM // 2, ROOM])
        at = number * 100
        if kind == "batch":
            first, count = BATCH * (number + 1), self.rng.choice([2, 30, 200])
            places = at + np.arange(count, dtype=np.uint64) * 70
            self.pair.a.core.post_batch(self.pair.at_a, BatchRequest(first, places, 64, None, None, first))
            for index in range(count):
                self.places[self.next_message + index] = (first + index, at + index * 70, 64)
            self.next_message += count
            self.wanted |= set(range(first, first + count))
            return
        if kind == "send":
            self.pair.send(number, length=length, at=at, key=number)
            self.places[self.next_message] = (number, at, length)
        else:
            self.pair.b.keys.ranges[number] = (START_B + number * ROOM, ROOM, "w")
            self.pair.write(number, length=length, at=at, key=number, immediate=number)
            self.writes.add(number)
        self.lengths[number] = length
        self.next_message += 1
        self.wanted.add(number)

    def consume(self) -> bool:
        """Check and release what has arrived; return whether every request has ended."""
        pair, now = self.pair, self.pair.network.now
        if self.seen == len(pair.b.events):
            return self.all_have_ended()
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
        return self.all_have_ended()

    def all_have_ended(self) -> bool:
        """Whether every request has ended."""
        pair = self.pair
        for end in pair.a.events[self.seen_ends :]:
            self.ended += end.count if isinstance(end, BatchCompletion) else isinstance(end, Completion)
        self.seen_ends = len(pair.a.events)
        return self.ended == len(self.wanted)

    def run(self) -> None:
        """Post, cancel and consume in turn until everything has ended."""
        for number in range(REQUESTS):
            self.post(number)
            if self.rng.random() < 0.3:
                self.pair.network.run(seconds=self.rng.choice([0.0001, 0.002, 0.02]))
            if self.rng.random() < 0.1:
                self.pair.cancel(self.rng.choice([number, BATCH * (number + 1)]))
            if self.rng.random() < 0.7:
                self.consume()
        self.pair.network.run(until=self.consume, seconds=60)
        assert statuses_of(self.pair.a).keys() == self.wanted, "a request has not ended"
        self.pair.network.run(until=lambda: not self.consume(), seconds=2)


@pytest.mark.parametrize("seed", range(12))
def test_inbox__at_most_once_whatever_happens(seed: int) -> None:
    storm = Storm(seed)
    storm.run()
    pair, statuses = storm.pair, statuses_of(storm.pair.a)
    assert set(statuses.values()) <= {
        Status.OK, Status.FLUSHED, RNR, BAD_QPN, Status.LOCAL_ERROR_UNRESP_REMOTE
    }, "none has another cause"  # fmt: skip
    assert max(storm.arrived.values(), default=1) == 1
    for request, status in statuses.items():
        if status is Status.OK:
            assert storm.arrived[request] == 1
        elif status is BAD_QPN:
            assert request not in storm.arrived
    for request, length in storm.lengths.items():
        if statuses[request] is BAD_QPN:
            assert storm.destinations.taken[request] == 0
            assert storm.destinations.refused[request] == 1
        assert storm.destinations.taken[request] + storm.destinations.refused[request] <= 1, "asked once"
        if request in storm.writes and statuses[request] is Status.OK:
            assert pair.written(request * ROOM, length) == pair.a.region[request * 100 :][:length].tobytes()
    assert storm.destinations.taken - reported(pair.b) == reported(pair.b) - storm.destinations.taken == {}
    assert pair.is_idle()
    assert not pair.b.core.peer(pair.at_b).receiver.has_refused
    assert all_credit_is_unused(pair)


@pytest.mark.parametrize(("flags", "immediate"), [(0, None), (IMMEDIATE, 5)])
def test_batch__its_new_messages_are_one_event_with_the_key_of_all(flags: int, immediate: int | None) -> None:
    pair = Pair()
    peer = pair.b.core.peer(pair.at_b)
    batch = ReceivedBurst(
        flags=flags, path=0, path_sequence=0, context=peer.own_context, psn=0, count=4, sent_us=0, message=2**32 - 1,
        length=10, immediate=5, offset=0, key=77, payload_offset=100, payload_bytes=40, segment_bytes=10, address="a:0",
        received_at=1.0, batch=True,
    )  # fmt: skip
    for known in (0, 3):
        peer.responder.handle(single_packet(batch, known), now=1.0)
    assert peer.responder.handle(batch, now=1.0) == [Extent(0, 110, 20)]
    assert pair.b.core._events.pop() == MessagesReceived(peer.number, 0, 2, 10, immediate, 110, 77)
