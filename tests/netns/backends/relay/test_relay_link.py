from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from netns.backends.relay.relay_link import BATCH_FRAMES, NEVER_NS, RelayLinkDirection
from netns.backends.relay.relay_link import arrival_times as progression
from netns.backends.relay.tap import Tap
from netns.netem.shape import Shape

# A pair of datagram sockets keeps the edges of frames as a TAP does, and refuses writes when its queue is full.
Ends = tuple[socket.socket, socket.socket]

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    9    0     0       0          0
  tap0:       0       0    0    4    0     0          0         0        0       0    0 {drops:4}    0     0       0          0
"""  # noqa: E501 - as the kernel prints it


def take(direction: RelayLinkDirection, *, since_ns: int | None = None) -> bool:
    """Read and admit as the relay does; return whether the source still exists."""
    is_there = direction.read(limit_frames=BATCH_FRAMES)
    now_ns = monotonic_ns()
    direction.admit(since_ns=since_ns or now_ns, now_ns=now_ns)
    return is_there


def admit(direction: RelayLinkDirection, frames: list[bytes], *, since_ns: int, now_ns: int) -> None:
    """Admit frames as if they had been read at `now_ns`."""
    direction.unstamped.extend(frames)
    direction.admit(since_ns=since_ns, now_ns=now_ns)


def tap_of(end: socket.socket, path: Path) -> Tap:
    path.write_text(NET_DEV.format(drops=5))
    return Tap(netns="n", ifname="tap0", fd=end.fileno(), frame_bytes=9018, statistics_fd=os.open(path, os.O_RDONLY))


class Wire:
    """A direction between two datagram socket pairs: `inlet` is what a sender writes to, `outlet` is read from."""

    def __init__(self, directory: Path, shape: Shape) -> None:
        self.inlet, source = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        sink, self.outlet = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sockets = (self.inlet, source, sink, self.outlet)
        for end in self.sockets:
            end.settimeout(0)
        self.statistics = directory / "source"
        self.taps = tap_of(source, self.statistics), tap_of(sink, directory / "sink")
        self.direction = RelayLinkDirection(source=self.taps[0], sink=self.taps[1], shape=shape, seed=1)

    def close(self) -> None:
        for tap in self.taps:
            os.close(tap.statistics_fd)
        for end in self.sockets:
            end.close()


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    made = Wire(tmp_path, Shape())
    yield made
    made.close()


def test_frames_go_through_and_are_counted(wire: Wire) -> None:
    for frame in (b"one", b"three"):
        wire.inlet.send(frame)
    assert take(wire.direction)
    assert wire.direction.counters()["queued"] == 2
    wire.direction.send_due(monotonic_ns())
    assert [wire.outlet.recv(100), wire.outlet.recv(100)] == [b"one", b"three"]
    assert wire.direction.counters() == {
        "packets": 2, "bytes": 8, "delayed": 2, "dropped": 0, "overlimit": 0, "duplicated": 0, "corrupted": 0,
        "reordered": 0, "ecn_marked": 0, "queued": 0, "tap_drops": 0,
    }  # fmt: skip


def test_send_due__holds_frames_until_due_and_measures_lateness(wire: Wire) -> None:
    wire.direction.netem.reshape(Shape(delay_us=1000))
    wire.inlet.send(b"x")
    before = monotonic_ns()
    take(wire.direction, since_ns=before)
    wire.direction.send_due(before + 999_999)
    assert wire.direction.packets == 0
    at = wire.direction.netem.next_at_ns
    assert at is not None
    wire.direction.send_due(at + 7_000)
    assert (wire.direction.packets, wire.direction.late_ns, wire.direction.late_max_ns) == (1, 7_000, 7_000)


def test_read_and_send_due__do_a_batch_at_most(wire: Wire) -> None:
    taken = 0
    while taken < BATCH_FRAMES + 5:  # the socket holds fewer than a batch
        wire.inlet.send(b"x")
        take(wire.direction)
        taken += 1
    wire.outlet.close()
    wire.direction.send_due(monotonic_ns())
    assert wire.direction.refused == BATCH_FRAMES
    wire.direction.send_due(monotonic_ns())
    assert wire.direction.refused == taken
    assert wire.direction.packets == 0


def test_read__stops_at_the_limit(wire: Wire) -> None:
    for _ in range(5):
        wire.inlet.send(b"x")
    assert wire.direction.read(limit_frames=1)
    assert wire.direction.read(limit_frames=2)
    wire.direction.admit(since_ns=0, now_ns=1)
    assert wire.direction.counters()["queued"] == 3
    take(wire.direction)
    assert wire.direction.counters()["queued"] == 5


def test_due_at_ns__is_that_of_held_frames(wire: Wire) -> None:
    assert wire.direction.due_at_ns == NEVER_NS
    admit(wire.direction, [b"a", b"b"], since_ns=0, now_ns=400)
    assert wire.direction.due_at_ns == 100
    wire.direction.send_due(monotonic_ns())
    assert wire.direction.due_at_ns == NEVER_NS
    admit(wire.direction, [], since_ns=500, now_ns=600)
    assert wire.direction.due_at_ns == NEVER_NS


def test_read__reports_a_missing_source(wire: Wire) -> None:
    assert take(wire.direction), "nothing to read is not the end"
    wire.sockets[1].shutdown(socket.SHUT_RD)
    wire.sockets[1].close()
    assert not take(wire.direction)


def test_tap_drops__adds_refused_frames_to_those_unread_since_the_start(wire: Wire) -> None:
    assert wire.direction.tap_drops() == 0
    wire.statistics.write_text(NET_DEV.format(drops=12))
    wire.direction.refused = 2
    assert wire.direction.tap_drops() == 2 + 12 - 5
    wire.statistics.write_text("")
    assert wire.taps[0].dropped_unread() == 0


FRAME = bytes(9014)
FULL_FRAME_NS = 288_448  # at 250 Mbit/s


def test_admit__spreads_frames_over_the_interval(wire: Wire) -> None:
    wire.direction.netem.reshape(Shape(delay_us=1))
    admit(wire.direction, [b"a", b"b"], since_ns=0, now_ns=400)
    assert [wire.direction.netem.dequeue(10_000) for _ in range(2)] == [(1100, b"a"), (1300, b"b")]


def test_admit__arrival_times_never_decrease(wire: Wire) -> None:
    admit(wire.direction, [b"a"], since_ns=0, now_ns=400)
    admit(wire.direction, [b"b"], since_ns=0, now_ns=500)
    assert wire.direction.due_at_ns == 200
    assert wire.direction.netem.dequeue(500) == (450, b"b")


def test_admit__departed_frames_leave_room(wire: Wire) -> None:
    """A late relay still holds frames whose departure has passed: they do not count against the limit."""
    wire.direction.netem.reshape(Shape(delay_us=100, limit_packets=1))
    admit(wire.direction, [b"a", b"b", b"c"], since_ns=0, now_ns=600_000)
    assert wire.direction.counters()["overlimit"] == 0
    assert wire.direction.counters()["queued"] == 3
    assert wire.direction.due_at_ns == 200_000
    wire.direction.send_due(600_000)
    assert [wire.outlet.recv(9), wire.outlet.recv(9), wire.outlet.recv(9)] == [b"a", b"b", b"c"]


def test_admit__a_true_overload_is_still_dropped(wire: Wire) -> None:
    """At twice the link's rate for 100 ms, exactly the link's capacity and its queue are delivered."""
    wire.direction.netem.reshape(Shape(delay_us=500, rate_bps=250_000_000, limit_packets=10))
    for turn in range(100):
        admit(wire.direction, [FRAME] * 7, since_ns=turn * 10**6, now_ns=(turn + 1) * 10**6)
    carried = 700 - wire.direction.counters()["overlimit"]
    assert abs(carried - 100 * 10**6 / FULL_FRAME_NS) <= 10


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example has its own queue
@given(
    gap_ns=st.integers(FULL_FRAME_NS, 4 * FULL_FRAME_NS),
    delay_us=st.integers(0, 2000),
    absences_ns=st.lists(st.integers(1, 10**5) | st.integers(10**5, 10**7), max_size=40),
)
def test_admit__a_stream_below_the_rate_loses_nothing_however_late_it_is_read(
    tmp_path: Path, gap_ns: int, delay_us: int, absences_ns: list[int]
) -> None:
    room = -(-(delay_us * 1000 + FULL_FRAME_NS) // gap_ns)  # what is in the delay line and on the wire at once
    wire = Wire(tmp_path, Shape(delay_us=delay_us, rate_bps=250_000_000, limit_packets=room + 2))
    try:
        now = arrived = 0
        for absence_ns in absences_ns:
            since, now = now, now + absence_ns
            frames = [FRAME] * (now // gap_ns - arrived)
            arrived += len(frames)
            admit(wire.direction, frames, since_ns=since, now_ns=now)
        assert wire.direction.counters()["overlimit"] == 0
        assert wire.direction.counters()["queued"] == arrived
    finally:
        wire.close()


def arrival_times(count: int, *, since_ns: int, now_ns: int) -> list[int]:
    if not count:
        return []
    first_ns, step_ns = progression(count, since_ns=since_ns, now_ns=now_ns)
    return [first_ns + number * step_ns for number in range(count)]


gaps = st.integers(1, 10**6)
# Time between two reads of the relay, in ns: microseconds on an idle host, milliseconds on a busy one.
absences = st.lists(st.integers(1, 10**4) | st.integers(10**4, 10**7), max_size=20)


def stamped(*, first_ns: int, gap_ns: int, absences_ns: list[int]) -> list[tuple[int, int]]:
    """Return (true arrival, estimate) of each frame of a steady stream that is read after each such time."""
    seen, read_at, number = [], 0, 0
    for absence_ns in absences_ns:
        since, read_at = read_at, read_at + absence_ns
        arrived = range(first_ns + number * gap_ns, read_at + 1, gap_ns)
        seen += list(zip(arrived, arrival_times(len(arrived), since_ns=since, now_ns=read_at), strict=True))
        number += len(arrived)
    return seen


def test_arrival_times__the_middles_of_equal_parts() -> None:
    assert arrival_times(1, since_ns=100, now_ns=200) == [150]
    assert arrival_times(4, since_ns=0, now_ns=80) == [10, 30, 50, 70]
    assert arrival_times(3, since_ns=7, now_ns=7) == [7, 7, 7], "found at the very time since when it can be there"


@given(st.integers(1, 50), st.integers(0, 10**9), st.integers(0, 10**9))
def test_arrival_times__in_order_and_within_the_interval(count: int, since_ns: int, span_ns: int) -> None:
    times = arrival_times(count, since_ns=since_ns, now_ns=since_ns + span_ns)
    assert len(times) == count
    assert times == sorted(times)
    assert all(since_ns <= at <= since_ns + span_ns for at in times)


@given(gaps, absences)
@example(288_448, [350_000] * 10)
def test_arrival_times__a_steady_stream_is_at_most_half_a_gap_off(gap_ns: int, absences_ns: list[int]) -> None:
    bounded = [min(absence_ns, 200 * gap_ns) for absence_ns in absences_ns]
    pairs = stamped(first_ns=gap_ns, gap_ns=gap_ns, absences_ns=bounded)
    assert all(abs(estimate - true) <= gap_ns / 2 + 200 for true, estimate in pairs), "whole nanoseconds"
