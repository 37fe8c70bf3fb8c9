"""Shortage: of many half-received messages one becomes whole."""

from __future__ import annotations

import pytest

from srd.proto.config import ProtocolConfig
from srd.proto.receive import Receiver
from srd.proto.shortage import Shortage
from srd.proto.wire import Opcode, Run


class Receiving:
    """As much of a peer as Shortage looks at."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.receiver = Receiver(ProtocolConfig())
        self.receiver.segment_bytes = 100


def run(message: int, *, psn: int = 0, flags: int = 0, payload_bytes: int = 100, offset: int = 0) -> Run:
    return Run(
        flags=flags, path=0, path_sequence=psn, context=7, psn=psn, count=1, sent_us=0, message=message, length=300,
        immediate=0, offset=offset, key=0, payload_offset=0, payload_bytes=payload_bytes, segment_bytes=100,
        address="x:0", received_at=100.0,
    )  # fmt: skip


@pytest.fixture
def peers() -> dict[int, Receiving]:
    return {number: Receiving(number) for number in (1, 2)}


@pytest.mark.sources
def test_admits__only_the_oldest_part(peers: dict[int, Receiving]) -> None:
    shortage = Shortage()
    for psn, message in enumerate((4, 5)):
        peers[2].receiver.take(run(message, psn=psn), now=100.0)
    assert not shortage.admits(peers[1], run(9), peers=peers, now=100.0)  # type: ignore[arg-type]  # as much as it looks at
    assert not shortage.admits(peers[2], run(5), peers=peers, now=100.0)  # type: ignore[arg-type]
    assert shortage.admits(peers[2], run(4), peers=peers, now=100.0)  # type: ignore[arg-type]
    assert shortage.refused_packets == 2


@pytest.mark.sources
def test_admits__the_next_once_it_is_whole(peers: dict[int, Receiving]) -> None:
    shortage = Shortage()
    peers[1].receiver.take(run(4, psn=0), now=100.0)
    peers[2].receiver.take(run(8, psn=0), now=100.0)
    assert not shortage.admits(peers[2], run(8), peers=peers, now=100.0)  # type: ignore[arg-type]
    for psn in (1, 2):
        peers[1].receiver.take(run(4, psn=psn, offset=100 * psn), now=100.0)
    assert shortage.admits(peers[2], run(8), peers=peers, now=100.0)  # type: ignore[arg-type]


@pytest.mark.sources
def test_admits__one_that_begins_when_nothing_is_held_in_part(peers: dict[int, Receiving]) -> None:
    shortage = Shortage()
    assert shortage.admits(peers[1], run(4), peers=peers, now=100.0)  # type: ignore[arg-type]
    peers[1].receiver.take(run(4), now=100.0)
    assert not shortage.admits(peers[1], run(5, psn=1), peers=peers, now=100.0)  # type: ignore[arg-type]


@pytest.mark.sources
def test_admits__the_favoured_peer_may_go(peers: dict[int, Receiving]) -> None:
    shortage = Shortage()
    peers[1].receiver.take(run(4), now=100.0)
    assert not shortage.admits(peers[2], run(4), peers=peers, now=100.0)  # type: ignore[arg-type]
    del peers[1]
    assert shortage.admits(peers[2], run(4), peers=peers, now=100.0)  # type: ignore[arg-type]


@pytest.mark.sources
@pytest.mark.parametrize(("flags", "payload_bytes"), [(Opcode.WRITE, 100), (Opcode.RESPONSE, 100), (Opcode.SEND, 0)])
def test_admits__what_needs_no_memory(peers: dict[int, Receiving], flags: int, payload_bytes: int) -> None:
    shortage = Shortage()
    peers[1].receiver.take(run(4), now=100.0)
    one = run(9, psn=1, flags=flags, payload_bytes=payload_bytes)
    assert shortage.admits(peers[2], one, peers=peers, now=100.0)  # type: ignore[arg-type]
