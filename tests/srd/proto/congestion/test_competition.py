"""When a controller competes with what fills the queue."""

from __future__ import annotations

from srd.proto.congestion.competition import HIGH_RTTS, Competition

PACKET_BYTES = 1472
RTT_S = 0.02
TARGET_S = 0.01
LARGE, SMALL = 100.0 * PACKET_BYTES, 20.0 * PACKET_BYTES


class Hand:
    """A competition, and the clock; a round is a round trip with one look at the queue."""

    def __init__(self) -> None:
        self.competition = Competition(packet_bytes=PACKET_BYTES)
        self.now = 10.0

    def rounds(
        self,
        count: int,
        queue_s: float,
        window_bytes: float,
        *,
        base_s: float = RTT_S,
        bytes_per_s: float | None = None,
    ) -> float:
        """Return the window after so many rounds. By default the rate is what the window makes it."""
        for _ in range(count):
            self.now += RTT_S
            window_bytes = self.competition.on_delay(
                queue_s=queue_s,
                base_s=base_s,
                target_s=TARGET_S,
                window_bytes=window_bytes,
                bytes_per_s=window_bytes / RTT_S if bytes_per_s is None else bytes_per_s,
                rtt_s=RTT_S,
                now=self.now,
            )
        return window_bytes

    def begin(self) -> float:
        """Begin the competition; return the window."""
        self.rounds(1, 0.0, LARGE)
        window_bytes = self.rounds(HIGH_RTTS + 2, 2 * TARGET_S, SMALL)
        assert self.competition.is_on
        return window_bytes


def test_on_delay__a_queue_that_stays_though_the_window_shrank_begins_it() -> None:
    hand = Hand()
    assert hand.begin() == LARGE / 2


def test_on_delay__a_window_that_did_not_shrink_is_the_cause_of_its_queue() -> None:
    hand = Hand()
    assert hand.rounds(10 * HIGH_RTTS, TARGET_S, LARGE) == LARGE
    assert not hand.competition.is_on


def test_on_delay__a_rate_that_did_not_fall_with_the_window_was_taken_by_nobody() -> None:
    """As by jitter after a start that overshot."""
    hand = Hand()
    rate = 1.5 * SMALL / RTT_S
    hand.rounds(1, 0.0, LARGE, bytes_per_s=rate)
    assert hand.rounds(10 * HIGH_RTTS, TARGET_S, SMALL) == SMALL
    assert not hand.competition.is_on
    hand.rounds(1, TARGET_S, SMALL, bytes_per_s=0.4 * rate)
    assert hand.competition.is_on


def test_on_delay__a_queue_that_was_empty_between_does_not_begin_it() -> None:
    hand = Hand()
    hand.rounds(1, 0.0, LARGE)
    for _ in range(4):
        hand.rounds(HIGH_RTTS - 1, 2 * TARGET_S, SMALL)
        hand.rounds(1, 0.1 * TARGET_S, SMALL)
    assert not hand.competition.is_on


def test_on_delay__an_empty_queue_ends_it() -> None:
    hand = Hand()
    hand.begin()
    hand.rounds(1, 0.3 * TARGET_S, SMALL)
    assert hand.competition.is_on
    hand.rounds(1, 0.1 * TARGET_S, SMALL)
    assert not hand.competition.is_on


def test_on_delay__a_base_that_grew_meanwhile_has_the_queue_in_it() -> None:
    hand = Hand()
    hand.begin()
    hand.rounds(100, 0.0, SMALL, base_s=RTT_S + TARGET_S)
    assert hand.competition.is_on


def test_grown__two_packets_a_round_trip() -> None:
    competition = Competition(packet_bytes=PACKET_BYTES)
    window_bytes = SMALL
    for _ in range(20):
        window_bytes = competition.grown(window_bytes, acked_bytes=PACKET_BYTES)
    assert 1.9 * PACKET_BYTES < window_bytes - SMALL < 2 * PACKET_BYTES


def test_shrunk__by_half_once_a_round_trip_and_never_below_two_packets() -> None:
    competition = Competition(packet_bytes=PACKET_BYTES)
    assert competition.shrunk(LARGE, rtt_s=RTT_S, now=10.0) == LARGE / 2
    assert competition.shrunk(LARGE / 2, rtt_s=RTT_S, now=10.01) == LARGE / 2
    assert competition.shrunk(LARGE / 2, rtt_s=RTT_S, now=10.03) == LARGE / 4
    assert competition.shrunk(PACKET_BYTES * 3.0, rtt_s=RTT_S, now=10.1) == 2 * PACKET_BYTES
