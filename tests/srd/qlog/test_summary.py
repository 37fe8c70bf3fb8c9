"""srd.qlog.summary: sums of given events, and of a transfer in virtual time against the core's counters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.netem.shape import Shape
from srd.proto.trace import (
    AckReceived,
    BurstSent,
    DataReceived,
    MessageAborted,
    MessageReceived,
    MetricsUpdated,
    PacketsLost,
    PathSampled,
    PathStateChanged,
    PeerEnded,
    PeerOpened,
    ProbeSent,
    RequestCompleted,
    TraceEvent,
    WriteReceived,
)
from srd.proto.work_request import WorkRequest
from srd.qlog.reader import Record
from srd.qlog.summary import INTERVALS, STALLS, LongestStalls, PeerSummary, ReceivedPath, summarise, timeline
from tests.simulation import completed, connected
from tests.srd.qlog.files import Recorder


def burst(path: int, *, psn: int, packets: int = 1, again: bool = False) -> BurstSent:
    return BurstSent(
        path, 0, psn, packets, 100 * packets, 0, 0, "send", retransmission=again, inflight_bytes=156 * packets
    )


def ack(packets: int) -> AckReceived:
    return AckReceived(0, packets, 156 * packets, 0, ())


def acked(size_bytes: int) -> AckReceived:
    return AckReceived(0, 1, size_bytes, 0, ())


def lost(packets: int, trigger: str) -> PacketsLost:
    return PacketsLost(0, 0, 0, packets, trigger)


def metrics(window: int, *, inflight: int, trigger: str = "ack") -> MetricsUpdated:
    return MetricsUpdated(window, inflight, 1000.0, trigger)


def data(path: int, *, kept: int, size: int = 100, incomplete: bool = True) -> DataReceived:
    return DataReceived(path, 0, 0, 1, size, 0, 0, kept, incomplete=incomplete, kind="send")


def summary(*timed: tuple[float, TraceEvent]) -> PeerSummary:
    (peer,) = summarise(Record(at_s, 0, event) for at_s, event in timed).values()
    return peer


# -- stalls ---------------------------------------------------------------------------------------------------------


def test_stalls__only_the_longest_are_kept() -> None:
    stalls = LongestStalls()
    at_s = 0.0
    for length in (3, 9, 1, 7, 5, 8, 2, 6, 4):
        stalls.wait(at_s)
        at_s += length
        stalls.progress(at_s, outstanding=False)
    assert [length for _, length in stalls.ranked()] == [9, 8, 7, 6, 5]
    assert len(stalls.longest) == STALLS


def test_send_stalls__unacknowledged_packets() -> None:
    peer = summary(
        (0.0, burst(0, psn=0, packets=2)),
        (0.1, ack(1)),
        (0.2, ack(0)),  # no new packet: no progress
        (0.3, burst(1, psn=1, again=True)),  # no more is outstanding than before
        (0.6, ack(1)),
        (5.0, burst(0, psn=2)),
        (5.25, ack(1)),
    )
    assert peer.send_stalls.ranked() == [(0.1, pytest.approx(0.5)), (5.0, 0.25), (0.0, 0.1)]
    assert peer.outstanding_packets == 0


def test_send_stalls__to_the_end_of_the_trace() -> None:
    peer = summary((1.0, burst(0, psn=0)), (4.0, PeerEnded("LOCAL_ERROR_UNRESP_REMOTE", "no packet for 1.0 s")))
    assert peer.send_stalls.ranked() == [(1.0, 3.0)]
    assert peer.end == "LOCAL_ERROR_UNRESP_REMOTE, no packet for 1.0 s"


def test_receive_stalls__incomplete_messages() -> None:
    peer = summary(
        (0.0, data(0, kept=100)),
        (0.5, data(0, kept=0)),  # a duplicate: no progress
        (0.75, data(1, kept=50, incomplete=False)),
        (9.0, data(0, kept=0, size=0, incomplete=False)),  # an empty message
    )
    assert peer.receive_stalls.ranked() == [(0.0, 0.75)]
    assert peer.landed_bytes == [100, 150, 150]


# -- sums -----------------------------------------------------------------------------------------------------------


def test_summarise__what_was_sent() -> None:
    peer = summary(
        (0.0, PeerOpened("b:0", incoming=False, datagram_bytes=1472, paths=2)),
        (0.1, burst(0, psn=0, packets=3)),
        (0.2, burst(1, psn=3)),
        (0.3, PathSampled(0, 900.0, 900.0, 900.0, 5, 0)),
        (0.3, PathSampled(0, 1100.0, 900.0, 900.0, 5, 2)),
        (0.3, ack(2)),
        (0.3, metrics(7000, inflight=312)),
        (0.4, PacketsLost(1, 0, 3, 1, "timeout")),
        (0.4, PathStateChanged(1, "active", "suspect")),
        (0.4, metrics(3000, inflight=156, trigger="timeout")),
        (0.5, ProbeSent(1, 1)),
        (0.6, burst(0, psn=3, again=True)),
        (0.7, ack(2)),
        (0.7, metrics(5000, inflight=0)),
        (0.7, RequestCompleted(5, "OK", 400.0)),
        (0.7, RequestCompleted(6, "OK", 600.0)),
        (0.8, RequestCompleted(7, "FLUSHED", 9.0)),
        (0.9, PeerEnded("OK", "closed")),
    )
    assert (peer.address, peer.incoming, peer.end) == ("b:0", False, "OK, closed")
    assert (peer.began_s, peer.ended_s, peer.acks) == (0.0, 0.9, 2)
    first, second = peer.sent[0], peer.sent[1]
    assert (first.bursts, first.packets, first.payload_bytes, first.retransmitted, first.lost) == (2, 4, 400, 1, 0)
    assert (second.bursts, second.packets, second.retransmitted, second.lost, second.probes) == (1, 1, 0, 1, 1)
    assert (first.state, first.state_changes, second.state, second.state_changes) == ("active", 0, "suspect", 1)
    assert (first.rtt_at_s, first.rtt_us) == ([0.3, 0.3], [900.0, 1100.0])
    assert peer.completed == {"OK": 2, "FLUSHED": 1}
    assert peer.latencies_us == [400.0, 600.0]
    assert (peer.acked_at_s, peer.acked_bytes) == ([0.3, 0.7], [312, 624])
    assert (peer.cwnd_at_s, peer.cwnd_bytes) == ([0.3, 0.4, 0.7], [7000, 3000, 5000])
    assert peer.inflight_bytes == [468, 156, 312, 156, 156, 0]
    assert peer.inflight_at_s == [0.1, 0.2, 0.3, 0.4, 0.6, 0.7]
    assert [(loss.at_s, loss.path, loss.packets, loss.trigger) for loss in peer.losses] == [(0.4, 1, 1, "timeout")]
    assert peer.resent == [(0.6, 1)]
    assert not peer.received


def test_summarise__what_was_received() -> None:
    peer = summary(
        (0.0, data(3, kept=100)),
        (0.1, data(3, kept=40)),
        (0.2, data(5, kept=100, incomplete=False)),
        (0.2, MessageReceived(0, 240)),
        (0.3, WriteReceived(1, 100, immediate=False)),
        (0.3, MessageAborted(2, "send", 50)),
    )
    assert peer.received == {3: ReceivedPath(2, 2, 200, 60), 5: ReceivedPath(1, 1, 100, 0)}
    assert (peer.messages, peer.writes, peer.aborted, peer.sent) == (1, 1, 1, {})


def test_summarise__peers_are_apart() -> None:
    records = [Record(0.0, 4, burst(0, psn=0)), Record(1.0, 2, burst(0, psn=0)), Record(2.0, 4, burst(1, psn=1))]
    peers = summarise(records)
    assert list(peers) == [4, 2]
    assert (set(peers[4].sent), set(peers[2].sent)) == ({0, 1}, {0})
    assert summarise([]) == {}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_summarise__a_transfer_in_virtual_time(seed: int) -> None:
    recorder = Recorder()
    network, number, _ = connected(seed=seed, shape=Shape(delay_us=1000, loss_percent=1), traces={"a": recorder})
    core = network.a.core.peer(number)
    network.a.core.post(number, WorkRequest(request=1, payload_offset=0, length=8 << 20))
    network.run(until=lambda: core.sender.packets > 200, seconds=5)
    died_at = network.now
    dead = network.dead
    dead.update(range(4))  # no packet passes for 100 ms
    network.run(until=lambda: network.now > died_at + 0.1, seconds=0.1)
    dead.clear()
    network.run(until=lambda: bool(completed(network.a)), seconds=20)
    peer = summarise(recorder.records)[number]
    for path in core.sender.paths:
        mine = peer.sent[path.index]
        assert (mine.packets, mine.retransmitted, mine.lost, mine.state) == (
            path.counters.packets,
            path.counters.retransmitted,
            path.counters.lost,
            path.state.name.lower(),
        )
    assert peer.outstanding_packets == 0
    began_s, length_s = peer.send_stalls.ranked()[0]
    assert died_at - 0.01 < began_s < died_at + 0.003
    assert 0.1 < length_s < 0.4, "no packet passed for 100 ms, and then a probe or two until the next"


# -- intervals: each event counts in exactly one ---------------------------------------------------------------------


def test_timeline__by_hand() -> None:
    peer = summary(
        (5.0, acked(100)),
        (5.5, acked(50)),
        (5.9, data(0, kept=7)),
        (6.1, lost(3, "reordering")),
        (6.2, lost(2, "timeout")),
        (6.9, burst(0, psn=0, packets=4, again=True)),
        (15.0, PeerEnded("OK", "")),
    )
    length_s, rows = timeline(peer)
    assert (length_s, len(rows)) == (1.0, INTERVALS)
    assert [row.begin_s for row in rows] == [5.0 + index for index in range(10)]
    assert (rows[0].acked_bytes, rows[0].landed_bytes, rows[0].reordered) == (150, 7, 0)
    assert (rows[1].acked_bytes, rows[1].reordered, rows[1].timed_out, rows[1].resent) == (0, 3, 2, 4)
    assert not any(row.acked_bytes or row.reordered or row.timed_out or row.resent for row in rows[2:])


def test_timeline__of_a_moment() -> None:
    length_s, rows = timeline(summary((1.0, acked(9))))
    assert length_s == 0
    assert [row.acked_bytes for row in rows] == [9] + [0] * 9


@given(
    times=st.lists(st.floats(0, 1000), min_size=1, max_size=30),
    kind=st.sampled_from(["ack", "data", "reordering", "timeout", "resent"]),
)
def test_timeline__nothing_is_left_out(times: list[float], kind: str) -> None:
    events: dict[str, TraceEvent] = {
        "ack": acked(3),
        "data": data(0, kept=3),
        "reordering": lost(3, "reordering"),
        "timeout": lost(3, "timeout"),
        "resent": burst(0, psn=0, packets=3, again=True),
    }
    _, rows = timeline(summary(*((at_s, events[kind]) for at_s in sorted(times))))
    sums = {
        "ack": sum(row.acked_bytes for row in rows),
        "data": sum(row.landed_bytes for row in rows),
        "reordering": sum(row.reordered for row in rows),
        "timeout": sum(row.timed_out for row in rows),
        "resent": sum(row.resent for row in rows),
    }
    assert sums == {name: 3 * len(times) if name == kind else pytest.approx(0) for name in sums}
