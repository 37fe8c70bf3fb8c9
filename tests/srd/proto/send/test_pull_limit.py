"""The sender's half of pulls by hand: what may be sent, and when it asks."""

from __future__ import annotations

import math
from random import Random

import pytest

from srd.proto.send.pull_limit import MAX_REQUEST_INTERVAL_S, PATIENCE, REQUEST_RTTS, WAIT_RTTS, PullLimit
from srd.proto.wire.control import ANY_BYTES, NO_LIMIT_BYTES, Pull, PullRequest

PACKET = 1000
RTT_S = 0.001
NOW = 10.0


@pytest.fixture
def limit() -> PullLimit:
    limit = PullLimit(rng=Random(1))
    limit.on_pull(Pull(0, 0, 1, 1024), now=NOW, rtt_s=RTT_S)
    return limit


def pulled(limit: PullLimit, limit_bytes: int, *, number: int, now: float = NOW, unsolicited_bytes: int = 1024) -> None:
    limit.on_pull(Pull(0, limit_bytes, number, unsolicited_bytes), now=now, rtt_s=RTT_S)


def ask(limit: PullLimit, *, backlog_bytes: int, now: float = NOW) -> PullRequest:
    return limit.request(context=0, backlog_bytes=backlog_bytes, path=0, now=now)


def test_free_at_first() -> None:
    assert not PullLimit(rng=Random(1)).applies


@pytest.mark.parametrize(("packet_bytes", "inflight_bytes", "packets"), [(100, 0, 10), (100, 950, 0), (1025, 0, 0)])
def test_room__unsolicited(limit: PullLimit, packet_bytes: int, inflight_bytes: int, packets: int) -> None:
    assert limit.room_packets(packet_bytes, inflight_bytes=inflight_bytes) == packets


def test_room__the_last_packet_may_exceed_the_limit(limit: PullLimit) -> None:
    pulled(limit, 2500, number=2)
    assert limit.room_packets(PACKET, inflight_bytes=5000) == 3
    limit.sent_bytes = 2499
    assert limit.room_packets(PACKET, inflight_bytes=5000) == 1
    limit.sent_bytes = 2500
    assert limit.room_packets(PACKET, inflight_bytes=5000) == 0


def test_pull__that_was_overtaken_is_dropped(limit: PullLimit) -> None:
    pulled(limit, 5000, number=4)
    pulled(limit, NO_LIMIT_BYTES, number=3)
    pulled(limit, 9000, number=4)
    assert limit.limit_bytes == 5000


def test_pull__without_limit_holds_until_idle(limit: PullLimit) -> None:
    limit.sent_bytes = 7000
    pulled(limit, NO_LIMIT_BYTES, number=2)
    assert not limit.applies
    limit.on_idle()
    assert limit.room_packets(PACKET, inflight_bytes=500) == 0
    pulled(limit, NO_LIMIT_BYTES, number=3, unsolicited_bytes=ANY_BYTES)
    limit.on_idle()
    assert not limit.applies, "the receiver has few peers"


def test_request__at_once_then_with_backoff(limit: PullLimit) -> None:
    limit.note_room(0, now=NOW, rtt_s=RTT_S)
    assert limit.ask_at == NOW
    now, interval_s = NOW, REQUEST_RTTS * RTT_S
    while True:
        assert ask(limit, backlog_bytes=5000, now=now) == PullRequest(0, 0, 5000, 1)
        assert interval_s / 2 <= limit.ask_at - now <= interval_s * 1.5
        if interval_s == MAX_REQUEST_INTERVAL_S:
            break
        assert limit.room_packets(PACKET, inflight_bytes=1000) == 0
        now, interval_s = limit.ask_at, min(2 * interval_s, MAX_REQUEST_INTERVAL_S)
    for _ in range(3):
        ask(limit, backlog_bytes=5000, now=now)
        assert limit.room_packets(PACKET, inflight_bytes=1000) == 1, "a packet each from then on"
        limit.sent_bytes += PACKET


def test_request__a_pull_ends_patience_even_if_used_up(limit: PullLimit) -> None:
    """A packet that was sent unasked had used up the pull that came then: patience would never have ended."""
    limit.note_room(0, now=NOW, rtt_s=RTT_S)
    for _ in range(20):
        ask(limit, backlog_bytes=5000)
    limit.sent_bytes = 2 * PACKET
    pulled(limit, PACKET, number=2)
    for _ in range(PATIENCE - 1):
        ask(limit, backlog_bytes=5000)
        assert limit.room_packets(PACKET, inflight_bytes=2000) == 0
    ask(limit, backlog_bytes=5000)
    assert limit.room_packets(PACKET, inflight_bytes=2000) == 1


def test_request__not_before_twice_the_last_turn(limit: PullLimit) -> None:
    """A turn that takes long is no reason to ask again: a slow host would have more requests to answer than data."""
    limit.note_room(0, now=NOW, rtt_s=RTT_S)
    ask(limit, backlog_bytes=5 * PACKET)
    pulled(limit, PACKET, number=2, now=NOW + 0.1)
    limit.sent_bytes = PACKET
    limit.note_room(0, now=NOW + 0.1, rtt_s=RTT_S)
    assert limit.ask_at - NOW >= 0.1 + 2 * 0.1 / 2


def test_request__much_later_once_answered(limit: PullLimit) -> None:
    limit.note_room(0, now=NOW, rtt_s=RTT_S)
    ask(limit, backlog_bytes=5000)
    pulled(limit, 0, number=2)
    assert limit.ask_at - NOW >= WAIT_RTTS * RTT_S / 2


def test_request__not_for_what_was_announced(limit: PullLimit) -> None:
    limit.note_room(0, now=NOW, rtt_s=RTT_S)
    ask(limit, backlog_bytes=2 * PACKET)
    pulled(limit, PACKET, number=2)
    assert limit.ask_at == math.inf
    limit.sent_bytes = PACKET
    limit.note_room(0, now=NOW, rtt_s=RTT_S)
    assert limit.ask_at > NOW, "the second packet was announced"
    limit.on_lost()
    limit.note_room(0, now=NOW, rtt_s=RTT_S)
    assert limit.ask_at == NOW, "the first was lost"


def test_request__for_what_was_not_announced(limit: PullLimit) -> None:
    ask(limit, backlog_bytes=PACKET)
    pulled(limit, PACKET, number=2)
    limit.sent_bytes = PACKET
    limit.note_room(0, now=NOW, rtt_s=RTT_S)
    assert limit.ask_at == NOW
