"""srd.qlog.summary: each event counts in exactly one interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.trace import AckReceived, BurstSent, DataReceived, PacketsLost, PeerEnded, TraceEvent
from srd.qlog.reader import Record
from srd.qlog.summary import INTERVALS, PeerSummary, summarise, timeline


def ack(size_bytes: int) -> AckReceived:
    return AckReceived(0, 1, size_bytes, 0, ())


def data(size_bytes: int) -> DataReceived:
    return DataReceived(0, 0, 0, 1, size_bytes, 0, 0, size_bytes, incomplete=True, kind="send")


def lost(packets: int, trigger: str) -> PacketsLost:
    return PacketsLost(0, 0, 0, packets, trigger)


def resent(packets: int) -> BurstSent:
    return BurstSent(0, 0, 0, packets, 0, 0, 0, "send", retransmission=True, inflight_bytes=0)


def peer_of(*timed: tuple[float, TraceEvent]) -> PeerSummary:
    return summarise(Record(at_s, 0, event) for at_s, event in timed)[0]


def test_timeline__by_hand() -> None:
    peer = peer_of(
        (5.0, ack(100)),
        (5.5, ack(50)),
        (5.9, data(7)),
        (6.1, lost(3, "reordering")),
        (6.2, lost(2, "timeout")),
        (6.9, resent(4)),
        (15.0, PeerEnded("OK", "")),
    )
    length_s, rows = timeline(peer)
    assert (length_s, len(rows)) == (1.0, INTERVALS)
    assert [row.begin_s for row in rows] == [5.0 + index for index in range(10)]
    assert (rows[0].acked_bytes, rows[0].landed_bytes, rows[0].reordered) == (150, 7, 0)
    assert (rows[1].acked_bytes, rows[1].reordered, rows[1].timed_out, rows[1].resent) == (0, 3, 2, 4)
    assert not any(row.acked_bytes or row.reordered or row.timed_out or row.resent for row in rows[2:])


def test_timeline__of_a_moment() -> None:
    length_s, rows = timeline(peer_of((1.0, ack(9))))
    assert length_s == 0
    assert [row.acked_bytes for row in rows] == [9] + [0] * 9


@given(
    times=st.lists(st.floats(0, 1000), min_size=1, max_size=30),
    kind=st.sampled_from(["ack", "data", "reordering", "timeout", "resent"]),
)
def test_timeline__nothing_is_left_out(times: list[float], kind: str) -> None:
    events: dict[str, TraceEvent] = {
        "ack": ack(3),
        "data": data(3),
        "reordering": lost(3, "reordering"),
        "timeout": lost(3, "timeout"),
        "resent": resent(3),
    }
    _, rows = timeline(peer_of(*((at_s, events[kind]) for at_s in sorted(times))))
    sums = {
        "ack": sum(row.acked_bytes for row in rows),
        "data": sum(row.landed_bytes for row in rows),
        "reordering": sum(row.reordered for row in rows),
        "timeout": sum(row.timed_out for row in rows),
        "resent": sum(row.resent for row in rows),
    }
    assert sums == {name: 3 * len(times) if name == kind else pytest.approx(0) for name in sums}
