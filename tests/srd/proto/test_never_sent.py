"""A peer that speaks of what was never sent, or answers what was not asked: nothing comes of it but a count."""

from __future__ import annotations

import pytest

from srd.proto.endpoint.peer import PeerCore
from srd.proto.events import TargetCopy
from srd.proto.wire.control import Ack, Nack
from srd.proto.wire.data import ABORTED, HEADER_BYTES, GroDatagram, Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Network, completed
from tests.srd.proto.byhand import answers, data_packet

SIZE = 8972
PAYLOAD_BYTES = SIZE - HEADER_BYTES
KEY_A, KEY_B = 11, 12
LENGTH = 3 * PAYLOAD_BYTES


def opened() -> tuple[Network, int, PeerCore]:
    network = Network(seed=1)
    network.a.keys.ranges[KEY_A] = network.b.keys.ranges[KEY_B] = (0, 1 << 20, "lrw")
    here, _ = network.connect()
    return network, here, network.a.core.peer(here)


def read(network: Network, here: int) -> int:
    """Post a read, and return the number of its message."""
    wr = WorkRequest(request=1, length=LENGTH, opcode=Opcode.READ, key=KEY_B, local_key=KEY_A)
    network.a.core.post(here, wr)
    sender = network.a.core.peer(here).sender
    message = sender.queue.by_request(1)
    assert message is not None
    return message.number


def answer(peer: PeerCore, message: int, *, psn: int, part: int = 0, flags: int = 0) -> GroDatagram:
    """A packet of b's answer to a read."""
    flags |= Opcode.RESPONSE
    packet = data_packet(
        peer.own_context,
        psn=psn,
        path_sequence=psn,
        message=5,
        length=LENGTH,
        flags=flags,
        offset=part * PAYLOAD_BYTES,
        size=SIZE,
        payload_bytes=0 if flags & ABORTED else PAYLOAD_BYTES,
        source="b:0",
        key=message,
    )
    packet.payload_offset = psn * PAYLOAD_BYTES
    return packet


def test_acknowledged__a_psn_that_waits_to_be_sent() -> None:
    """The abort of a message that is partially packetized has one, before anything was sent with it."""
    network, here, peer = opened()
    network.a.core.post(here, WorkRequest(request=1, length=4 << 20))
    network.run(seconds=0.0001)
    sender = peer.sender
    network.a.core.cancel(here, request=1, now=network.now)
    assert set(sender._inflight.unsent) == {sender._inflight.next_psn - 1}
    before, last = network.a.core.malformed, sender._inflight.next_psn
    for lie in (Ack(peer.own_context, last, 0, 0, 0, ()), Ack(peer.own_context, 0, 1 << last - 1, 0, 0, ())):
        network.a.core.handle_packets([], controls=[(lie.encode(), "b:0", network.now)], now=network.now)
    assert network.a.core.malformed == before + 2
    assert sender._inflight.base == 0
    network.run(until=lambda: sender._inflight.base == last, seconds=5)
    assert not sender._inflight.unsent
    assert not network.b.core.peer(0).receiver.incomplete, "it was told that the rest will not come"


@pytest.mark.parametrize("flags", [0, ABORTED])
def test_response__to_a_read_that_waits_to_be_sent(flags: int) -> None:
    network, here, peer = opened()
    message = read(network, here)
    result = network.a.core.handle_packets([answer(peer, message, psn=100, flags=flags)], controls=[], now=network.now)
    assert not result.copies
    assert not completed(network.a)
    out = answers(network.a, now=network.now)
    assert flags or Nack(peer.remote_context, 5, Status.REMOTE_ERROR_ABORT) in out
    network.run(until=lambda: bool(completed(network.a)), seconds=5)
    assert [done.status for done in completed(network.a)] == [Status.OK]
    assert network.a.target[:LENGTH].tobytes() == network.b.region[:LENGTH].tobytes()
    sender = peer.sender
    assert sender.queue.outstanding_reads == 0


@pytest.mark.parametrize("parts", [(0, 0, 0), (0, 1, 1), (2, 1, 2), (1, 0, 1)])
def test_response__that_gives_a_part_twice_is_no_answer(parts: tuple[int, ...]) -> None:
    """As many bytes as were asked for, under as many PSNs: a part of the memory would keep what it had."""
    network, here, peer = opened()
    message = read(network, here)
    answers(network.a, now=network.now)  # the READ leaves, and does not arrive
    copies: list[TargetCopy] = []
    for psn, part in enumerate(parts):
        arrivals = [answer(peer, message, psn=psn, part=part)]
        copies += network.a.core.handle_packets(arrivals, controls=[], now=network.now).copies
    network._serve(network.a)
    assert [done.status for done in completed(network.a)] == [Status.REMOTE_ERROR_ABORT]
    assert network.end_of(network.a).reason == "answer 5 to a read has packets that overlap"
    assert len(copies) == len(set(parts)), "what overlaps is not placed"


def test_response__in_any_order_is_an_answer() -> None:
    network, here, peer = opened()
    message = read(network, here)
    answers(network.a, now=network.now)
    for psn, part in enumerate((2, 0, 1)):
        network.a.core.handle_packets([answer(peer, message, psn=psn, part=part)], controls=[], now=network.now)
        network.a.core.handle_packets([answer(peer, message, psn=psn, part=part)], controls=[], now=network.now)
    network._serve(network.a)
    assert [done.status for done in completed(network.a)] == [Status.OK]


def test_nack__of_a_message_that_waits_to_be_sent() -> None:
    network, here, peer = opened()
    network.a.core.post(here, WorkRequest(request=1, length=100))
    lie = Nack(peer.own_context, 0, Status.REMOTE_ERROR_ABORT)
    network.a.core.handle_packets([], controls=[(lie.encode(), "b:0", network.now)], now=network.now)
    network.run(until=lambda: bool(completed(network.a)), seconds=5)
    assert [done.status for done in completed(network.a)] == [Status.OK]


def test_close__of_a_peer_that_says_that_round_trips_take_a_minute() -> None:
    """And that never answers the CLOSE, but goes on probing: five timeouts, none of which it may prolong."""
    network, here, peer = opened()
    network.a.core.post(here, WorkRequest(request=1, length=100))
    network.run(until=lambda: bool(completed(network.a)), seconds=5)
    sender = peer.sender
    for path in sender.paths:
        path.rtt.smoothed_s = 59.0
    sender._rtt.smoothed_s = 59.0
    network.loses = lambda direction, _packet: direction == "a"  # b never learns of the CLOSE
    network.a.core.close(here, now=network.now)
    began = network.now
    assert network.end_of(network.a, seconds=1000).status is Status.OK
    assert network.now - began < 5 * network.config.handshake_timeout_s + 10
