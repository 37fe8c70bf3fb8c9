from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns

import pytest

from netns.fabric.direction import BATCH_FRAMES, Direction
from netns.fabric.tap import Tap
from netns.shape import Shape

# A pair of datagram sockets keeps the edges of frames as a TAP does, and refuses writes when its queue is full.
Ends = tuple[socket.socket, socket.socket]

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    9    0     0       0          0
  tap0:       0       0    0    4    0     0          0         0        0       0    0 {drops:4}    0     0       0          0
"""  # noqa: E501 - as the kernel prints it


def tap_of(end: socket.socket, path: Path) -> Tap:
    path.write_text(NET_DEV.format(drops=5))
    return Tap(netns="n", ifname="tap0", fd=end.fileno(), statistics_fd=os.open(path, os.O_RDONLY))


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
        self.direction = Direction(source=self.taps[0], sink=self.taps[1], shape=shape, seed=1)

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
    assert wire.direction.take()
    assert wire.direction.counters()["queued"] == 2
    wire.direction.send_due(monotonic_ns())
    assert [wire.outlet.recv(100), wire.outlet.recv(100)] == [b"one", b"three"]
    assert wire.direction.counters() == {
        "packets": 2, "bytes": 8, "dropped_loss": 0, "dropped_limit": 0, "queued": 0, "tap_drops": 0,
    }  # fmt: skip


def test_send_due__holds_what_is_not_due_and_measures_lateness(wire: Wire) -> None:
    wire.direction.netem.reshape(Shape(delay_us=1000))
    wire.inlet.send(b"x")
    before = monotonic_ns()
    wire.direction.take()
    wire.direction.send_due(before + 999_999)
    assert wire.direction.packets == 0
    at = wire.direction.netem.next_at_ns
    assert at is not None
    wire.direction.send_due(at + 7_000)
    assert (wire.direction.packets, wire.direction.late_ns, wire.direction.late_max_ns) == (1, 7_000, 7_000)


def test_take_and_send_due__do_a_batch_at_most(wire: Wire) -> None:
    taken = 0
    while taken < BATCH_FRAMES + 5:  # the socket holds fewer than a batch
        wire.inlet.send(b"x")
        wire.direction.take()
        taken += 1
    wire.outlet.close()
    wire.direction.send_due(monotonic_ns())
    assert wire.direction.refused == BATCH_FRAMES
    wire.direction.send_due(monotonic_ns())
    assert wire.direction.refused == taken
    assert wire.direction.packets == 0


def test_take__stops_at_a_batch(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netns.fabric.direction.BATCH_FRAMES", 3)
    for _ in range(5):
        wire.inlet.send(b"x")
    wire.direction.take()
    assert len(wire.direction.netem) == 3
    wire.direction.take()
    assert len(wire.direction.netem) == 5


def test_take__tells_when_the_source_is_gone(wire: Wire) -> None:
    assert wire.direction.take(), "nothing to read is not the end"
    wire.sockets[1].shutdown(socket.SHUT_RD)
    wire.sockets[1].close()
    assert not wire.direction.take()


def test_tap_drops__adds_refused_frames_to_those_unread_since_the_start(wire: Wire) -> None:
    assert wire.direction.tap_drops() == 0
    wire.statistics.write_text(NET_DEV.format(drops=12))
    wire.direction.refused = 2
    assert wire.direction.tap_drops() == 2 + 12 - 5
    wire.statistics.write_text("")
    assert wire.taps[0].dropped_unread() == 0
