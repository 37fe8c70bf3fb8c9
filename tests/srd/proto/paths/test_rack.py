"""Loss on one path: reordering, timeouts, and spurious losses."""

from __future__ import annotations

import pytest

from srd.proto.outgoing.inflight import Inflight, InflightBurst
from srd.proto.outgoing.message import OutgoingMessage
from srd.proto.paths.path import Path
from srd.proto.paths.rack import (
    MAX_REORDERING_STEPS,
    REORDERING_MEMORY_RTTS,
    RackState,
    detect_losses,
    probe_timeout_s,
)
from srd.proto.wire.data import HEADER_BYTES
from srd.proto.work_request import WorkRequest

RTT_S = 0.002
MIN_RTO_S = 0.01


class Flight:
    """One path with bursts of `count` packets sent at the given times."""

    def __init__(self, *sent_at: float, count: int = 2) -> None:
        self.sent = Inflight()
        self.rack = RackState()
        self.path = Path(0, initial_rtt_s=0.05)
        self.path.rtt.update(RTT_S, now=1.0)
        message = OutgoingMessage(WorkRequest(1, 10**6), 0, segment_bytes=1000 - HEADER_BYTES)
        for at in sent_at:
            psns = self.sent.add(message, count=count)
            transmission = InflightBurst(psns, psns.first, count, self.path.allocate_sequences(count), at)
            self.path.transmissions.append(transmission)
            self.path.inflight_bytes += transmission.bytes

    def detect(self, now: float) -> tuple[list[tuple[int, int]], bool, float | None]:
        found = detect_losses(self.path, inflight=self.sent, rack=self.rack, now=now, min_rto_s=MIN_RTO_S)
        if found is None:
            return [], False, None
        return [(t.first, missing) for t, missing in found.lost], found.timed_out, found.check_at


def test_detect_losses__drops_acknowledged_bursts() -> None:
    flight = Flight(10.0, 10.1)
    flight.sent.acknowledge(4, bitmap=0)
    assert flight.detect(10.2) == ([], False, None)
    assert (flight.path.inflight_bytes, len(flight.path.transmissions)) == (0, 0)


@pytest.mark.parametrize(
    ("count", "bitmap", "carried", "lost"),
    [
        (1, 0, 944, 6),
        (4, 0, 4 * 944, 9),
        (4, 0b1000, 3 * 944 + 1, 8),
        (4, 0b1000, 4 * 944, 0),
        (4, 0b0100, 4 * 944, 0),
        (4, 0b0011, 4 * 944, 0),
        (4, 0b1111, 4 * 944, 0),
        (1, 0b1, 100, 5),
        (1, 0, 100, 5),
    ],
    ids=["one", "all", "all but a short end", "the last passed", "one passed", "some", "none", "short", "short lost"],
)
def test_detect_losses__counts_packets_of_a_size_lost_without_one_that_passed(
    count: int, bitmap: int, carried: int, lost: int
) -> None:
    """On the path, and on all paths together; five were lost before."""
    flight = Flight(10.0, count=count)
    rows = flight.path.size_losses, flight.rack.black_hole
    for row in rows:
        row.on_lost(5, size_bytes=1000)
    flight.path.transmissions[0].psns.message.carried_bytes = carried
    flight.sent.acknowledge(0, bitmap=bitmap & ~1) if not bitmap & 1 else flight.sent.acknowledge(
        (~bitmap & bitmap + 1).bit_length() - 1, bitmap=0
    )
    flight.detect(11.0)
    assert [row.packets for row in rows] == [lost, lost]


def test_detect_losses__short_packets_say_nothing_of_longer_ones() -> None:
    flight = Flight(10.0, 10.1, 10.2)
    flight.path.size_losses.on_lost(5, size_bytes=1000)
    for transmission in flight.path.transmissions:
        transmission.psns.packet_bytes = 999
    flight.sent.acknowledge(2, bitmap=0)
    flight.detect(11.0)
    assert not flight.path.transmissions
    assert flight.path.size_losses.packets == 5


def test_detect_losses__what_arrived_of_a_long_path_behind_a_loss_ends_the_row() -> None:
    flight = Flight(10.0, 10.01, count=1)
    flight.path.rtt.update(0.1, now=2.0)
    flight.path.rtt.min_s = 0.1
    flight.rack.black_hole.on_lost(5, size_bytes=1000)
    flight.path.on_report(1)
    flight.sent.acknowledge(0, bitmap=0b10)
    flight.detect(10.02)
    assert len(flight.path.transmissions) == 1, "the lost one waits"
    assert not flight.rack.black_hole.packets


def test_detect_losses__what_a_suspect_path_carried_before_does_not_end_the_suspicion() -> None:
    flight = Flight(10.0, 10.1)
    flight.path.size_losses.suspect()
    flight.sent.acknowledge(2, bitmap=0)
    flight.detect(11.0)
    assert flight.path.mtu_suspect


def test_detect_losses__a_path_knows_which_of_its_packets_had_the_size_that_was_lost() -> None:
    flight = Flight(10.0, 10.001, 10.002, 10.003, 10.9)
    assert flight.path.carried_full(9)
    flight.detect(10.5)
    assert flight.path.mtu_suspect
    assert [sequence for sequence in range(12) if flight.path.size_losses.had(sequence)] == [*range(8)]
    assert [sequence for sequence in range(12) if flight.path.carried_full(sequence)] == [8, 9], "is in flight"
    flight.path.size_losses.on_gone(20, count=2)
    assert [sequence for sequence in range(30) if flight.path.size_losses.had(sequence)] == [20, 21], "the last row"
    flight.path.size_losses.reset()
    assert not flight.path.size_losses.had(20)


def test_detect_losses__a_tail_is_lost_by_timeout() -> None:
    flight = Flight(10.0)
    lost_at = 10.0 + flight.path.rtt.timeout_s(floor_s=MIN_RTO_S)
    usual_at = 10.0 + probe_timeout_s(flight.path)
    assert usual_at < lost_at
    assert flight.detect(usual_at - 1e-6) == ([], False, usual_at)
    assert flight.detect(lost_at - 1e-6) == ([], False, lost_at)
    assert flight.path.inflight_bytes == 2000
    assert flight.detect(lost_at) == ([(0, 0b11)], True, None)
    assert flight.path.inflight_bytes == 0
    assert flight.path.counters.lost == 2


def test_detect_losses__reordering_window_is_a_round_trip_and_a_quarter() -> None:
    flight = Flight(10.0, 10.001)
    flight.sent.acknowledge(0, bitmap=0b1100)  # the second burst arrived, the first did not
    flight.path.reported_sequence = 3
    window_s = RTT_S * 1.25
    lost, timed_out, again = flight.detect(10.0 + window_s - 1e-6)
    assert (lost, timed_out) == ([], False)
    assert again == pytest.approx(10.0 + window_s)
    assert flight.detect(10.0 + window_s + 1e-9) == ([(0, 0b11)], False, None)


def test_detect_losses__only_the_missing_packets_of_a_burst() -> None:
    flight = Flight(10.0, 10.001, count=4)
    flight.sent.acknowledge(1, bitmap=0b1111010)  # PSNs 0, 2 and 4 to 7: 1 and 3 are missing
    flight.path.reported_sequence = 7
    assert flight.detect(11.0) == ([(0, 0b1010)], False, None)
    assert flight.path.counters.lost == 2


def test_detect_losses__a_packet_lost_within_a_reported_burst() -> None:
    """Its last packet was reported, so the path will deliver no more of it."""
    flight = Flight(10.0, count=4)
    flight.sent.acknowledge(0, bitmap=0b1110)
    flight.path.reported_sequence = 3
    assert flight.detect(10.0 + RTT_S * 1.25 - 1e-6)[0] == []
    assert flight.detect(10.0 + RTT_S * 1.25 + 1e-9) == ([(0, 0b0001)], False, None)


def test_detect_losses__a_burst_of_which_only_the_beginning_was_reported_waits() -> None:
    """Its end may be in flight until the timeout."""
    flight = Flight(10.0, count=4)
    flight.sent.acknowledge(2, bitmap=0)
    flight.path.reported_sequence = 1
    assert flight.detect(10.0 + RTT_S * 1.3)[0] == []
    assert flight.detect(11.0) == ([(0, 0b1100)], True, None)


def test_detect_losses__stops_at_the_first_that_is_neither_acknowledged_nor_lost() -> None:
    """A later burst's acknowledgement stays counted as in flight until the head is acknowledged or lost."""
    flight = Flight(10.0, 10.0005)
    flight.sent.acknowledge(0, bitmap=0b1100)
    assert flight.detect(10.001)[0] == []
    assert len(flight.path.transmissions) == 2


def test_detect_losses__a_retransmission_acknowledged_elsewhere_is_no_loss() -> None:
    flight = Flight(10.0)
    flight.sent.acknowledge(2, bitmap=0)
    flight.path.reported_sequence = -1  # no report of this path
    assert flight.detect(99.0) == ([], False, None)
    assert flight.path.counters.lost == 0


# -- reports of other paths -----------------------------------------------------------------------------------------


def test_detect_losses__a_tail_is_lost_after_the_probe_timeout_when_later_packets_were_acknowledged_elsewhere() -> None:
    flight = Flight(10.0)
    usual_at = 10.0 + probe_timeout_s(flight.path)
    flight.rack.on_report(10.0 + RTT_S, rtt_s=RTT_S)
    assert flight.detect(usual_at - 1e-6) == ([], False, usual_at)
    assert flight.detect(usual_at) == ([(0, 0b11)], True, None)


def test_detect_losses__allows_for_the_delay_in_the_receiver() -> None:
    flight = Flight(10.0)
    usual_at = 10.0 + probe_timeout_s(flight.path)
    for _ in range(100):
        flight.rack.on_report(10.0 + RTT_S, rtt_s=RTT_S, ack_delay_s=0.5)
    lost, timed_out, look_again_at = flight.detect(usual_at)
    assert (lost, timed_out) == ([], False)
    assert look_again_at == pytest.approx(usual_at + 0.5, abs=1e-3)
    for _ in range(100):
        flight.rack.on_report(10.0 + RTT_S, rtt_s=RTT_S, ack_delay_s=0.0)
    assert flight.detect(usual_at + 1e-4) == ([(0, 0b11)], True, None)


def test_detect_losses__no_probe_where_the_receiver_delays_unevenly() -> None:
    """It reads packets in batches: the first of one waits longer than the last."""
    flight = Flight(10.0)
    for number in range(200):
        flight.rack.on_report(10.0, rtt_s=RTT_S, ack_delay_s=0.001 * (number % 10))
    look_again_at = flight.detect(10.0)[2]
    assert look_again_at is not None
    assert look_again_at > 10.0 + 0.009 + probe_timeout_s(flight.path)


def test_detect_losses__acks_of_packets_sent_less_than_a_round_trip_later_do_not_count() -> None:
    flight = Flight(10.0)
    flight.rack.on_report(10.0 + 0.9 * RTT_S, rtt_s=RTT_S)
    assert flight.detect(10.0 + probe_timeout_s(flight.path))[0] == []


def test_detect_losses__waits_behind_what_was_answered_last_in_a_queue_that_grows() -> None:
    flight = Flight(10.0)
    usual_at, longer_s = 10.0 + probe_timeout_s(flight.path), 0.01
    flight.rack.on_report(10.0 - 1e-6, rtt_s=RTT_S + longer_s)
    flight.rack.on_report(9.0, rtt_s=1.0)  # older, from a longer path
    assert flight.detect(usual_at)[2] == pytest.approx(usual_at + longer_s)
    timeout_at = 10.0 + flight.path.rtt.timeout_s(floor_s=MIN_RTO_S) + longer_s
    assert flight.detect(timeout_at - 1e-6)[0] == []
    assert flight.detect(timeout_at + 1e-6) == ([(0, 0b11)], True, None)


def test_detect_losses__a_round_trip_that_was_over_before_says_nothing_of_the_queue() -> None:
    flight = Flight(10.0)
    flight.rack.on_report(5.0, rtt_s=1.0)  # a long queue, before the pause
    assert flight.detect(10.0)[2] == 10.0 + probe_timeout_s(flight.path)


def test_detect_losses__an_answer_to_a_later_packet_shows_that_it_does_not_wait() -> None:
    flight = Flight(10.0)
    flight.rack.on_report(10.0, rtt_s=1.0)
    assert flight.detect(10.0)[2] == 10.0 + probe_timeout_s(flight.path)


def test_detect_losses__a_silent_path_is_probed_once() -> None:
    flight = Flight(10.0, 10.001)
    asked = []
    for at in (10.001, 10.0 + probe_timeout_s(flight.path), 10.0 + probe_timeout_s(flight.path) + 0.001):
        settled = detect_losses(flight.path, inflight=flight.sent, rack=flight.rack, now=at, min_rto_s=MIN_RTO_S)
        assert settled is not None
        asked.append(settled.wants_probe)
        assert settled.check_at is not None
        assert settled.check_at > at
    assert asked == [False, True, False]


def test_detect_losses__a_silent_path_is_not_checked_more_often_than_hosts_answer() -> None:
    """On links of 0.1 ms a quarter of the round trip would be 30 us, for the 10 ms until the timeout."""
    flight = Flight(10.0)
    at = 10.0 + probe_timeout_s(flight.path)
    assert flight.detect(at)[2] == pytest.approx(at + flight.path.rtt.smoothed_s / 4)
    flight.rack.jitter_s = 2 * flight.path.rtt.smoothed_s
    assert flight.detect(at)[2] == pytest.approx(at + flight.path.rtt.smoothed_s / 2)


def test_rack_state__the_reordering_window_grows_once_a_round_trip_and_decays() -> None:
    rack = RackState()
    for at in (10.0, 10.001, 10.0025, 10.005):
        rack.on_duplicates(1, now=at, rtt_s=RTT_S)
    assert rack.reordering_steps == 4
    rack.decay(now=10.01, rtt_s=RTT_S)
    assert rack.reordering_steps == 4
    rack.decay(now=10.1, rtt_s=RTT_S)
    assert rack.reordering_steps == 1
    for step in range(50):
        rack.on_duplicates(1, now=11.0 + step, rtt_s=RTT_S)
    assert rack.reordering_steps == MAX_REORDERING_STEPS


def test_detect_losses__a_wider_window_tolerates_more_reordering() -> None:
    flight = Flight(10.0, 10.001)
    flight.sent.acknowledge(0, bitmap=0b1100)
    flight.path.reported_sequence = 3
    flight.rack.on_duplicates(1, now=10.0, rtt_s=RTT_S)
    assert flight.detect(10.0 + RTT_S * 1.5 - 1e-6)[0] == []
    assert flight.detect(10.0 + RTT_S * 1.5 + 1e-9)[0] == [(0, 0b11)]


def test_rack_state__most_losses_are_spurious() -> None:
    rack = RackState()
    rack.on_lost(5, now=10.0, rtt_s=RTT_S)
    rack.on_lost(4, now=10.0 + RTT_S, rtt_s=RTT_S)  # the same episode
    changed = [rack.on_duplicates(2, now=10.0 + step * RTT_S, rtt_s=RTT_S) for step in range(2, 6)]
    assert changed == [False, False, True, False], "more than half, and once"


def test_rack_state__another_episode_is_counted_by_itself() -> None:
    rack = RackState()
    rack.on_lost(100, now=10.0, rtt_s=RTT_S)
    rack.on_lost(3, now=10.0 + (REORDERING_MEMORY_RTTS + 0.1) * RTT_S, rtt_s=RTT_S)
    assert rack.on_duplicates(2, now=10.05, rtt_s=RTT_S)


def test_on_duplicates__without_losses_change_nothing() -> None:
    assert not RackState().on_duplicates(9, now=10.0, rtt_s=RTT_S)


def test_detect_losses__what_arrived_behind_a_lost_burst_of_a_long_path_is_not_in_flight() -> None:
    """The head waits for its reordering window meanwhile."""
    flight = Flight(10.0, 10.001, 10.002, 10.003)
    flight.path.rtt.min_s = flight.path.rtt.latest_s = 0.1
    flight.sent.acknowledge(0, bitmap=0b11001100)  # the bursts 1 and 3, of which the last was not reported yet
    flight.path.reported_sequence = 5
    assert flight.detect(10.05)[:2] == ([], False)
    assert [transmission.first for transmission in flight.path.transmissions] == [0, 4, 6]
    assert flight.path.inflight_bytes == 6000
    flight.path.reported_sequence = 7
    assert flight.detect(10.2) == ([(0, 0b11), (4, 0b11)], False, None)
    assert flight.path.inflight_bytes == 0
