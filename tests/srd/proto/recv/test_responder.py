"""Who takes a message: sends and notified writes that `Destinations` take or refuse, on good and bad networks."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from netns.netem.shape import Shape
from srd.proto.events import Extent, MessageAborted, MessagesReceived, WriteReceived
from srd.proto.wire.data import IMMEDIATE, PacketType, ReceivedBurst, single_packet
from srd.proto.wire.status import REFUSALS, Status
from srd.proto.work_request import BatchRequest
from tests.simulation import Packet, content, ended, received
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


def test_discard__of_what_was_taken_is_reported_once() -> None:
    """Its sender stops in the middle; after the timeout it is discarded here, and then turned ABORTED there."""
    destinations, pair = deciding(shape=SLOW, reassembly_timeout_s=0.3)
    pair.send(1, length=4 * MIB, key=TAKEN_KEY)
    pair.network.run(seconds=0.2)
    pair.network.loses = lambda direction, packet: direction == "a" and len(packet[1]) > 0
    pair.network.run(until=lambda: bool(pair.b.of(MessageAborted)), seconds=5)
    pair.network.loses = None
    assert pair.run(1) == {1: RNR}
    (aborted,) = pair.b.of(MessageAborted)
    assert (aborted.key, aborted.length) == (TAKEN_KEY, 4 * MIB)
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
