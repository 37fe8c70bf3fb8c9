"""Memory shortage: one of many incomplete messages completes, and stalled ones are discarded."""

from __future__ import annotations

from typing import Any

import pytest

from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.admission import TURN_MEMORY_S, MemoryAdmission
from srd.proto.events import REGION_SHIFT
from srd.proto.recv.receiver import Receiver
from srd.proto.wire.data import Opcode, ReceivedBurst
from tests.srd.proto.recv.test_receiver import acks


class FakePeer:
    """The part of a peer that MemoryAdmission uses."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.waits_for_pull = False
        self.receiver = Receiver(ProtocolConfig(), acks=acks(ProtocolConfig()), segment_bytes=100)
        self.discarded: list[int] = []

    def discard(self, messages: list[int], *, now: float) -> None:
        assert now
        self.discarded += messages
        for message in messages:
            self.receiver.discard(message)

    def begin(self, *messages: int, now: float = 100.0) -> None:
        for message in messages:
            self.receiver.accept(burst_of(message, psn=3 * message), now=now)

    def finish(self, message: int, *, now: float = 100.0) -> None:
        for part in (1, 2):
            self.receiver.accept(burst_of(message, psn=3 * message + part, offset=100 * part), now=now)


def burst_of(
    message: int,
    *,
    psn: int = 0,
    flags: int = 0,
    payload_bytes: int = 100,
    offset: int = 0,
    payload_offset: int = 0,
) -> ReceivedBurst:
    return ReceivedBurst(
        flags=flags, path=0, path_sequence=psn, context=7, psn=psn, count=1, sent_us=0, message=message, length=300,
        immediate=0, offset=offset, key=0, payload_offset=payload_offset, payload_bytes=payload_bytes,
        segment_bytes=100, address="x:0", received_at=100.0,
    )  # fmt: skip


@pytest.fixture
def peers() -> dict[int, Any]:
    return {number: FakePeer(number) for number in (1, 2, 3)}


def admits(admission: MemoryAdmission, peers: dict[int, Any], number: int, message: int, *, now: float = 100.0) -> bool:
    return admission.admits(peers[number], burst_of(message), peers=peers, now=now)


def evicted(admission: MemoryAdmission, peers: dict[int, Any], *, now: float) -> dict[int, list[int]]:
    """Return the discarded messages, by peer."""
    for peer in peers.values():
        peer.discarded = []
    found = admission.evict_stalled(peers, now=now, stalled_after_s=1.0)
    assert {peer.number for peer in found} == {number for number, peer in peers.items() if peer.discarded}
    return {number: peer.discarded for number, peer in peers.items() if peer.discarded}


@pytest.mark.sources
def test_admits__only_the_oldest_message_of_one_peer(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[2].begin(4, 5)
    assert not admits(admission, peers, 2, 5)
    assert admits(admission, peers, 2, 4)
    assert not admits(admission, peers, 1, 9)


@pytest.mark.sources
def test_admits__the_next_in_the_queue_once_it_is_complete(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[1].begin(4)
    assert admits(admission, peers, 1, 4)
    assert not admits(admission, peers, 2, 8)
    assert not admits(admission, peers, 3, 8)
    peers[1].finish(4)
    assert not admits(admission, peers, 1, 5), "the queue goes first"
    assert not admits(admission, peers, 3, 8)
    assert admits(admission, peers, 2, 8)


@pytest.mark.sources
def test_admits__a_peer_without_packets_leaves_the_queue(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[1].begin(4)
    assert admits(admission, peers, 1, 4)
    assert not admits(admission, peers, 2, 8)
    peers[1].finish(4)
    assert admits(admission, peers, 3, 8, now=100.0 + TURN_MEMORY_S)


@pytest.mark.sources
def test_admits__another_when_the_peer_has_ended(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[1].begin(4)
    assert admits(admission, peers, 1, 4)
    assert not admits(admission, peers, 2, 4)
    del peers[1]
    assert admits(admission, peers, 2, 4)


@pytest.mark.sources
@pytest.mark.parametrize(("flags", "payload_bytes"), [(Opcode.WRITE, 100), (Opcode.RESPONSE, 100), (Opcode.SEND, 0)])
def test_admits__packets_that_need_no_memory(peers: dict[int, Any], flags: int, payload_bytes: int) -> None:
    admission = MemoryAdmission(0)
    peers[1].begin(4)
    assert admits(admission, peers, 1, 4)
    one = burst_of(9, psn=1, flags=flags, payload_bytes=payload_bytes)
    assert admission.admits(peers[2], one, peers=peers, now=100.0)


@pytest.mark.sources
def test_admits__a_discarded_message_so_that_its_sender_gets_a_nack(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[1].begin(4)
    peers[2].begin(4)
    assert admits(admission, peers, 1, 4)
    assert not admits(admission, peers, 2, 4)
    peers[2].receiver.discard(4)
    assert admits(admission, peers, 2, 4)


@pytest.mark.sources
def test_evict_stalled__a_stalled_turn_discards_all_incomplete_messages_of_its_peer(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[1].begin(4, 5)
    assert admits(admission, peers, 1, 4)
    for now in (100.3, 100.6, 100.9):
        assert not admits(admission, peers, 2, 8, now=now)
        assert not evicted(admission, peers, now=now)
    assert evicted(admission, peers, now=101.1) == {1: [4, 5]}
    assert admits(admission, peers, 2, 8, now=101.1)


@pytest.mark.sources
def test_evict_stalled__a_stalled_peer_comes_last_until_it_completes_one(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[1].begin(4)
    assert admits(admission, peers, 1, 4)
    evicted(admission, peers, now=101.0)
    peers[2].begin(8, now=101.0)
    assert admits(admission, peers, 2, 8, now=101.0)
    assert not admits(admission, peers, 1, 6, now=101.0)
    assert not admits(admission, peers, 3, 7, now=101.0)
    peers[2].finish(8, now=101.0)
    assert not admits(admission, peers, 1, 6, now=101.1), "though it was queued earlier"
    assert admits(admission, peers, 3, 7, now=101.1)


@pytest.mark.sources
def test_evict_stalled__not_while_data_arrives(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[1].begin(4)
    assert admits(admission, peers, 1, 4)
    peers[1].receiver.accept(burst_of(4, psn=13, offset=100), now=100.9)
    assert not evicted(admission, peers, now=101.8)
    assert evicted(admission, peers, now=102.0) == {1: [4]}


@pytest.mark.sources
def test_evict_stalled__time_without_memory_does_not_count(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[1].begin(4)
    peers[2].begin(8)
    assert admits(admission, peers, 1, 4)
    peers[1].receiver.on_no_memory(now=100.9)  # the memory was full
    peers[2].receiver.send_not_ready(now=101.2)  # another peer was admitted
    assert not evicted(admission, peers, now=101.5)
    assert evicted(admission, peers, now=102.0) == {1: [4]}
    assert evicted(admission, peers, now=102.3) == {2: [8]}


@pytest.mark.sources
def test_evict_stalled__time_in_which_a_peer_waits_for_a_pull_does_not_count(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[2].begin(1)
    peers[2].waits_for_pull = True
    assert evicted(admission, peers, now=102.0) == {}
    peers[2].waits_for_pull = False
    assert evicted(admission, peers, now=103.0) == {2: [1]}


@pytest.mark.sources
def test_evict_stalled__only_what_uses_receive_memory(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[1].begin(4)
    peers[2].receiver.accept(burst_of(8, payload_offset=1 << REGION_SHIFT), now=100.0)
    assert evicted(admission, peers, now=102.0) == {1: [4]}


@pytest.mark.sources
def test_evict_stalled__a_turn_that_is_not_used_ends(peers: dict[int, Any]) -> None:
    admission = MemoryAdmission(0)
    peers[1].begin(4)
    assert admits(admission, peers, 1, 4)
    assert not admits(admission, peers, 2, 8, now=100.1)
    peers[1].finish(4)
    assert not admits(admission, peers, 3, 8, now=100.2), "the other peer is admitted"
    assert not evicted(admission, peers, now=100.2 + TURN_MEMORY_S)
    assert admits(admission, peers, 3, 8, now=100.2 + TURN_MEMORY_S)
