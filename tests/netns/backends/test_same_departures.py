"""The relay's direction and the virtual link are one model: same seed, shape and arrivals, same
departures."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netns.backends.relay.relay_link import RelayLinkDirection
from netns.backends.relay.tap import Tap
from netns.backends.virtual.event_queue import EventQueue
from netns.backends.virtual.virtual_link import HostArrivals, Packet, PacketFlow, VirtualLink
from netns.netem.shape import Shape
from tests.netns.netem.test_queue_impairments import EVERYTHING

# Gaps in ns between the packets that arrive, and their lengths.
ARRIVALS = st.lists(st.tuples(st.integers(1, 200_000), st.integers(60, 1500)), max_size=60)


@pytest.fixture(scope="module")
def tap() -> Iterator[Tap]:
    """A placeholder for a TAP; no frame is read or written."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    statistics_fd = os.open("/proc/self/net/dev", os.O_RDONLY)
    with one, other:
        yield Tap(netns="none", ifname="none", fd=one.fileno(), frame_bytes=2000, statistics_fd=statistics_fd)
    os.close(statistics_fd)


def by_relay(shape: Shape, arrivals: list[tuple[int, int]], *, seed: int, tap: Tap) -> list[tuple[int, int]]:
    """(departure, length) of each frame that leaves, in order."""
    direction, now = RelayLinkDirection(source=tap, sink=tap, shape=shape, seed=seed), 0
    for gap, length in arrivals:
        now += gap
        direction.unstamped.append(bytes(length))
        direction.admit(since_ns=now, now_ns=now)
    left = [(at, len(frame)) for at, frame in direction._departed]
    while (at := direction.netem.next_at_ns) is not None:
        while (due := direction.netem.dequeue(at)) is not None:
            left.append((due[0], len(due[1])))
    return left


def by_virtual(shape: Shape, arrivals: list[tuple[int, int]], *, seed: int) -> list[tuple[int, int]]:
    events, left, now = EventQueue(), [], 0
    virtual_link = VirtualLink("a>b", shape=shape, seed=seed, events=events)
    virtual_link.observe = lambda record: (
        left.append((record.at_ns, record.length_bytes)) if record.fate == "left" else None
    )
    flow = PacketFlow("10.0.0.1", 1, "10.0.0.2", 2, links=(virtual_link,), arrivals=HostArrivals([]))
    for number, (gap, length) in enumerate(arrivals):
        now += gap
        packet = Packet(flow, number=number, length_bytes=length, content=None)
        events.at(now, lambda at_ns, packet=packet: virtual_link.transmit(packet, at_ns))  # type: ignore[misc]  # a default as a capture
    events.run(until_ns=2**62)
    return left


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(EVERYTHING, ARRIVALS, st.integers(0, 2**64 - 1))
def test_same_departures(tap: Tap, shape: Shape, arrivals: list[tuple[int, int]], seed: int) -> None:
    # Departures of the same nanosecond have the same order in both. But the virtual link admits an arrival before a
    # departure of the same time, so the delay keeps departures apart from arrivals.
    shape = replace(shape, delay_us=shape.delay_us + 0.0005)
    assert sorted(by_relay(shape, arrivals, seed=seed, tap=tap)) == sorted(by_virtual(shape, arrivals, seed=seed))
