"""Batches of small messages: each arrives once and completes separately, on any network."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from netns.netem.shape import Shape
from srd.proto.base.errors import UsageError
from srd.proto.config import ProtocolConfig
from srd.proto.events import BatchCompletion, Completion, Event, MessageReceived
from srd.proto.outgoing.inflight import Inflight
from srd.proto.outgoing.message import OutgoingBatch, max_packets
from srd.proto.wire.control import Nack
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest, WorkRequest
from tests.simulation import Conditions, Network, Packet, connected
from tests.srd.proto.byhand import give

COUNT = 700
LENGTH = 64
STRIDE = 100


def post(network: Network, peer: int, *, first: int = 0, count: int = COUNT, length: int = LENGTH) -> None:
    places = np.arange(count, dtype=np.uint64) * STRIDE
    network.a.core.post_batch(
        peer,
        BatchRequest(
            first_request=first, payload_addresses=places, length=length, immediate=None, owner=network.a.region
        ),
    )


def completed(network: Network) -> list[int]:
    """Requests that succeeded, one by one."""
    found = [e.request for e in network.a.of(Completion) if e.status is Status.OK]
    for event in network.a.events:
        if isinstance(event, BatchCompletion):
            found += range(event.request, event.request + event.count)
    return found


def failed(network: Network) -> dict[int, Status]:
    return {e.request: e.status for e in network.a.of(Completion) if e.status is not Status.OK}


def delivered(network: Network) -> list[MessageReceived]:
    return network.b.of(MessageReceived)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("loss_percent", [0.0, 5.0])
def test_post_batch__each_arrives_once_and_unchanged(seed: int, loss_percent: float) -> None:
    conditions = Conditions(duplicate=0.05, reorder_s=0.0005) if loss_percent else None
    network, peer, _ = connected(seed=seed, shape=Shape(delay_us=500, loss_percent=loss_percent), conditions=conditions)
    post(network, peer)
    network.run(until=lambda: len(completed(network)) == COUNT, seconds=20)
    assert sorted(completed(network)) == list(range(COUNT))
    messages = {event.message: event for event in delivered(network)}
    assert len(messages) == len(delivered(network)) == COUNT
    for number, event in messages.items():
        (extent,) = event.extents
        landed = network.b.landing[extent.region_offset : extent.region_offset + LENGTH]
        assert (landed == network.a.region[number * STRIDE : number * STRIDE + LENGTH]).all()


def test_post_batch__beside_other_messages_and_after_them() -> None:
    network, peer, _ = connected(seed=4)
    network.a.core.post(peer, WorkRequest(request=1000, payload_offset=0, length=50_000))
    post(network, peer, count=10)
    network.a.core.post(peer, WorkRequest(request=1001, payload_offset=0, length=50_000))
    post(network, peer, first=10, count=5, length=0)
    network.run(until=lambda: len(completed(network)) == 17)
    assert sorted(completed(network)) == [*range(15), 1000, 1001]
    assert sorted(event.length for event in delivered(network)) == [0] * 5 + [LENGTH] * 10 + [50_000] * 2


def test_cancel__of_a_batch_ends_only_its_open_messages() -> None:
    network, peer, _ = connected(seed=6)
    network.dead.update(range(4))
    post(network, peer)
    network.run(seconds=0.01)
    network.a.core.cancel(peer, request=0, now=network.now)
    network.dead.clear()
    post(network, peer, first=COUNT, count=20)
    network.run(until=lambda: len(completed(network)) == 20, seconds=5)
    assert failed(network) == dict.fromkeys(range(COUNT), Status.FLUSHED)
    assert sorted(completed(network)) == list(range(COUNT, COUNT + 20))
    assert len(delivered(network)) == 20
    sender = network.a.core.peer(peer).sender
    assert sender.idle


@pytest.mark.parametrize("length", [-1, 8917])
def test_post_batch__of_more_than_a_packet_is_refused(length: int) -> None:
    network, peer, _ = connected(seed=8)
    with pytest.raises(UsageError, match=f"length: {length} bytes are not between 0 and 8916"):
        post(network, peer, count=1, length=length)


def test_post_batch__numbers_never_straddle_two_to_the_32() -> None:
    network, peer, _ = connected(seed=9)
    sender = network.a.core.peer(peer).sender
    sender.queue._next_message = (1 << 32) - 3
    post(network, peer, count=10)
    network.run(until=lambda: len(completed(network)) == 10)
    assert sorted(event.message for event in delivered(network)) == list(range(10))


class Ended:
    """A batch that is wholly packetized, by itself."""

    def __init__(self, count: int) -> None:
        self.batch = OutgoingBatch(BatchRequest(100, np.arange(count, dtype=np.uint64), 10, owner=self), 5)
        Inflight().add(self.batch, count=count)

    def complete(self) -> tuple[list[Event], bool]:
        """Return what has completed since the last call, and whether that is all."""
        events: deque[Event] = deque()
        is_all = self.batch.complete(3, events=events)
        return list(events), is_all


def test_complete__ranges_and_what_is_open() -> None:
    ended = Ended(8)
    assert ended.batch.on_acked(0, bits=0b1101)
    assert ended.complete() == ([BatchCompletion(3, 100, 1), BatchCompletion(3, 102, 2)], False)
    assert ended.complete() == ([], False)
    assert ended.batch.open_requests == [101, 104, 105, 106, 107]
    ended.batch.on_acked(1, bits=0b1111001)
    assert ended.complete() == ([BatchCompletion(3, 101, 1), BatchCompletion(3, 104, 4)], True)


@pytest.mark.parametrize(
    ("limit", "packet_bytes", "most"),
    [(1, 120, 64), (1, 500, 17), (1, 4152, 2), (8, 4152, 17), (10**6, 2000, 768), (5, 8972, 5)],
)
def test_max_packets__by_weight_and_small_ones_within_a_datagram(limit: int, packet_bytes: int, most: int) -> None:
    assert max_packets(limit, packet_bytes, 8972) == most


def test_max_packets__of_a_small_mtu_as_many_as_of_any() -> None:
    assert max_packets(20, 600, 600) == 20


def test_post_batch__needs_a_message_of_credit_for_each() -> None:
    network, peer, other = connected(seed=5, config=ProtocolConfig(receive_window_messages=300))
    post(network, peer, count=1000, length=1)
    network.run(seconds=1)
    assert len(delivered(network)) == 300
    network.b.core.release(other, size_bytes=300, messages=300, now=network.now)
    network.run(seconds=1)
    assert len(delivered(network)) == 600


# -- refused by the responder ---------------------------------------------------------------------------------------


def stalled(count: int, *, start: int = 0) -> tuple[Network, int]:
    """A batch from message number `start` on, of which nothing has arrived yet."""
    network, peer, _ = connected(seed=11)
    sender = network.a.core.peer(peer).sender
    sender.queue._next_message = start
    network.loses = lambda direction, packet: direction == "a" and len(packet[1]) > 0
    post(network, peer, count=count)
    network.run(seconds=0.001)
    return network, peer


def nack(network: Network, peer: int, message: int, status: int = 10) -> None:
    context = network.a.core.peer(peer).own_context
    give(network.a, Nack(context, message, status), now=network.now, source="b:0")


@pytest.mark.parametrize("start", [0, 5, 2**32 - 20, 2**32])
def test_on_nack__ends_one_message_and_the_others_arrive(start: int) -> None:
    """Also about 2^32, where message numbers start again; a batch does not straddle it."""
    network, peer = stalled(20, start=start)
    for index in (0, 7, 19):
        nack(network, peer, start + index & 0xFFFFFFFF)
        nack(network, peer, start + index & 0xFFFFFFFF, 9)
    network.run(seconds=0.001)
    assert failed(network) == dict.fromkeys((0, 7, 19), Status.REMOTE_ERROR_RNR)
    network.loses = None
    network.run(until=lambda: len(completed(network)) == 17, seconds=5)
    network.run(seconds=0.2)
    others = sorted(set(range(20)) - {0, 7, 19})
    assert sorted(completed(network)) == others
    assert sorted(event.message for event in delivered(network)) == [start + index & 0xFFFFFFFF for index in others]
    sender = network.a.core.peer(peer).sender
    assert sender.idle
    assert sender._inflight.base == sender._inflight.next_psn == 20


def test_on_nack__of_all_ends_the_batch_and_frees_what_it_keeps_alive() -> None:
    network, peer = stalled(3)
    sender = network.a.core.peer(peer).sender
    batch = sender.queue.by_number(0)
    assert isinstance(batch, OutgoingBatch)
    for index in range(3):
        assert batch.owner is not None
        nack(network, peer, index)
    assert batch.owner is None
    assert sender.idle
    network.run(seconds=0.001)
    assert failed(network) == dict.fromkeys(range(3), Status.REMOTE_ERROR_RNR)
    network.loses = None
    network.run(seconds=0.5)
    assert delivered(network) == []
    assert sender._inflight.base == sender._inflight.next_psn == 3, "their aborts were acknowledged"


@pytest.mark.parametrize("message", [4, 24, 25, 1000, 2**32 - 1])
def test_on_nack__of_another_number_is_ignored(message: int) -> None:
    network, peer = stalled(20, start=5)
    nack(network, peer, message)
    network.loses = None
    network.run(until=lambda: len(completed(network)) == 20 - (message == 24), seconds=5)
    assert failed(network) == ({19: Status.REMOTE_ERROR_RNR} if message == 24 else {})


def test_on_nack__of_a_message_that_was_not_sent_yet_is_ignored() -> None:
    """A batch starts as far as there is credit."""
    network, peer, other = connected(seed=12, config=ProtocolConfig(receive_window_messages=5))
    post(network, peer, count=10)
    network.run(seconds=0.1)
    assert len(delivered(network)) == 5
    for index in range(10):
        nack(network, peer, index)
    network.run(seconds=0.001)
    assert failed(network) == {}
    network.b.core.release(other, size_bytes=5 * LENGTH, messages=5, now=network.now)
    network.run(until=lambda: len(completed(network)) == 10, seconds=5)
    assert sorted(completed(network)) == list(range(10))


def test_on_nack__in_a_batch_whose_other_packets_are_lost() -> None:
    """What is sent again is one packet a burst from then on, since an ABORTED packet carries its own end."""
    network, peer = stalled(40)
    aborted: list[tuple[int, int]] = []

    def note(direction: str, packet: Packet) -> bool:
        if direction == "a" and packet[0][1] == 1 and packet[0][2] & 8:
            aborted.append((int.from_bytes(packet[0][16:24], "big"), int.from_bytes(packet[0][40:48], "big")))
        return False

    for index in range(0, 40, 2):
        nack(network, peer, index)
    network.loses = note
    network.run(until=lambda: len(completed(network)) == 20, seconds=5)
    network.run(seconds=0.2)
    assert {psn for psn, _ in aborted} == set(range(0, 40, 2))
    assert all(end == psn + 1 for psn, end in aborted)
    assert sorted(completed(network)) == list(range(1, 40, 2))
    assert len(delivered(network)) == 20
