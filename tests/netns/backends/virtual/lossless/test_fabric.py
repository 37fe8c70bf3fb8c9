"""netns.backends.virtual.lossless on a fabric: exact times and bytes, no loss, pauses, the watchdog, deadlocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from netns.backends.virtual.event_queue import EventQueue
from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.lossless.egress_port import EgressPort
from netns.backends.virtual.lossless.profile import (
    CONTROL,
    LOSSLESS,
    LOSSY,
    ClassProfile,
    RedProfile,
    SwitchProfile,
    WatchdogProfile,
)
from netns.backends.virtual.lossless.switch import longest_pause_ns
from netns.backends.virtual.lossless.wait_graph import deadlock
from netns.backends.virtual.virtual_link import Packet, VirtualLink
from netns.errors import BackendError, ShapeError
from netns.netem.shape import Shape
from netns.topology.model import Link, Switch, Topology

RATE_BPS = 100_000_000_000
LINK = Shape(rate_bps=RATE_BPS, delay_us=1.0)
PACKET_BYTES = 4_160
PFC = SwitchProfile(classes={LOSSLESS: ClassProfile(lossless=True, alpha=1 / 8)}, buffer_bytes=1_000_000)


def star(hosts: int, *, to_last: Shape = LINK) -> Topology:
    names = tuple(f"h{n + 1}" for n in range(hosts))
    links = [Link(name, "s1", LINK, LINK) for name in names[:-1]]
    return Topology(
        name="star", hosts=names, switches=(Switch("s1", "leaf"),), links=(*links, Link(names[-1], "s1", LINK, to_last))
    )


def send(fabric: VirtualFabric, source: str, destination: str, *, packets: int, priority: int = LOSSLESS) -> None:
    flow = fabric.flow(
        fabric.address(source), source_port=1, destination=fabric.address(destination), destination_port=2
    )
    flow.priority = priority
    for number in range(packets):
        fabric.send(flow, length_bytes=PACKET_BYTES, content=number)


def arrivals(fabric: VirtualFabric, host: str) -> list[int]:
    found: list[int] = []

    def take(packets: list[Packet], now_ns: int) -> None:
        found.extend(now_ns for _ in packets)

    fabric.attach(host, take)
    return found


def port_of(fabric: VirtualFabric, near: str, far: str) -> EgressPort:
    port = fabric.links[near, far]
    assert isinstance(port, EgressPort)
    return port


@pytest.mark.parametrize("senders", [2, 8])
def test_incast__the_port_is_never_idle_to_the_nanosecond(senders: int) -> None:
    """N senders of 512 x 4,160 bytes: N x 170.3936 us of the port, and 2 us + 332.8 ns to it."""
    fabric = VirtualFabric(star(senders + 1), switches=PFC)
    times = arrivals(fabric, f"h{senders + 1}")
    for number in range(senders):
        send(fabric, f"h{number + 1}", f"h{senders + 1}", packets=512)
    fabric.run(until_ns=10**9)
    assert len(times) == senders * 512, "nothing is dropped"
    assert abs(times[-1] - (senders * 170_393.6 + 2_332.8)) <= 2
    assert sum(fabric.switches["s1"].dropped) == 0
    assert port_of(fabric, "h1", "s1").pauses > 0, "or the headroom was not tried"


def test_xoff__what_still_comes_is_the_round_trip_and_what_is_being_sent() -> None:
    """Nothing drains: the most that is held is the threshold, 2 us of 100 Gbit/s, and a packet at each end."""
    threshold = 100_000
    static = replace(PFC, classes={LOSSLESS: ClassProfile(lossless=True, static_bytes=threshold)}, reserve_bytes=0)
    fabric = VirtualFabric(star(2), switches=static)
    port_of(fabric, "s1", "h2").pause(LOSSLESS, for_ns=10**12)
    send(fabric, "h1", "h2", packets=512)
    fabric.run(until_ns=10**9)
    switch = fabric.switches["s1"]
    rounded = -(-threshold // PACKET_BYTES) * PACKET_BYTES
    assert rounded + 25_000 - PACKET_BYTES <= switch.most_bytes <= rounded + 25_000 + 2 * PACKET_BYTES
    assert sum(switch.dropped) == 0


def test_too_little_headroom__drops_and_counts_it() -> None:
    small = replace(PFC, headroom_bytes=5_000)
    fabric = VirtualFabric(star(2), switches=small)
    port_of(fabric, "s1", "h2").pause(LOSSLESS, for_ns=10**12)
    send(fabric, "h1", "h2", packets=512)
    fabric.run(until_ns=10**9)
    assert fabric.switches["s1"].dropped[LOSSLESS] > 0


def test_pause__stops_one_class_only_and_ends_by_itself() -> None:
    fabric = VirtualFabric(star(2), switches=PFC)
    times = arrivals(fabric, "h2")
    pause_ns = longest_pause_ns(RATE_BPS)
    port_of(fabric, "h1", "s1").pause(LOSSLESS, for_ns=pause_ns)
    send(fabric, "h1", "h2", packets=1)
    other = fabric.flow(fabric.address("h1"), source_port=3, destination=fabric.address("h2"), destination_port=4)
    fabric.send(other, length_bytes=PACKET_BYTES, content=None)
    fabric.run(until_ns=10**9)
    assert times == [2_664, pause_ns + 2_664]  # 332 ns on each link: the fraction is dropped when a port was idle


def test_pause__is_sent_again_while_the_reason_lasts() -> None:
    fabric = VirtualFabric(star(2), switches=PFC)
    port_of(fabric, "s1", "h2").pause(LOSSLESS, for_ns=10**10)
    send(fabric, "h1", "h2", packets=512)
    fabric.run(until_ns=20 * longest_pause_ns(RATE_BPS))
    port = port_of(fabric, "h1", "s1")
    assert port.pauses == 1, "never expired in between"
    assert port.paused


def test_pause__ends_when_the_packets_of_others_have_left() -> None:
    """The threshold is a part of the free memory: h1 is stopped by what others hold, and its packet does not leave."""
    fabric = VirtualFabric(star(4), switches=PFC)
    buffer, h1 = fabric.switches["s1"].buffer, port_of(fabric, "h1", "s1")
    port_of(fabric, "s1", "h3").pause(LOSSLESS, for_ns=10**12)
    buffer.used_bytes = buffer.shared_bytes - 35_000  # of this an eighth has room for a packet, but then for no other
    send(fabric, "h1", "h3", packets=1)
    fabric.run(until_ns=10_000)
    assert h1.paused >> LOSSLESS & 1
    buffer.used_bytes = PACKET_BYTES
    send(fabric, "h2", "h4", packets=1)
    fabric.run(until_ns=20_000)
    assert (h1.paused, h1.packets, port_of(fabric, "s1", "h3").packets) == (0, 1, 0)


def test_pause_frame__waits_for_the_packet_that_is_being_sent_and_takes_its_time() -> None:
    """It is due when h2's packet is there, after 332 and 1,000 ns; the link back has begun a packet at that moment.

    So it leaves 332 ns later, takes 5 ns (64 bytes) and 1,000 ns of cable.
    """
    at_once = replace(PFC, classes={LOSSLESS: ClassProfile(lossless=True, static_bytes=0)}, reserve_bytes=0)
    fabric = VirtualFabric(star(3), switches=at_once)
    port_of(fabric, "s1", "h3").pause(LOSSLESS, for_ns=10**12)
    send(fabric, "h1", "h2", packets=1, priority=LOSSY)
    send(fabric, "h2", "h3", packets=1)
    h2, due_ns = port_of(fabric, "h2", "s1"), 332 + 1_000 + 332 + 5 + 1_000
    fabric.run(until_ns=due_ns - 1)
    assert not h2.paused
    fabric.run(until_ns=due_ns)
    assert h2.paused == 1 << LOSSLESS


def test_pause_frame__does_not_cross_a_link_that_is_cut() -> None:
    fabric = VirtualFabric(star(2), switches=PFC)
    port_of(fabric, "s1", "h2").pause(LOSSLESS, for_ns=10**10)
    send(fabric, "h1", "h2", packets=512)
    fabric.run(until_ns=100_000)
    h1 = port_of(fabric, "h1", "s1")
    assert h1.paused
    fabric.links["s1", "h1"].failures = 1
    fabric.run(until_ns=100_000 + 2 * longest_pause_ns(RATE_BPS))
    assert not h1.paused, "it ended by itself"


def test_classes__control_goes_first_and_the_others_take_turns() -> None:
    fabric = VirtualFabric(star(2), switches=SwitchProfile())
    order: list[int] = []
    fabric.attach("h2", lambda packets, _now_ns: order.extend(packet.flow.priority for packet in packets))
    for number, (source_port, priority) in enumerate(((1, 0), (2, 2), (3, LOSSLESS), (4, CONTROL), (5, CONTROL + 1))):
        flow = fabric.flow(
            fabric.address("h1"), source_port=source_port, destination=fabric.address("h2"), destination_port=number
        )
        flow.priority = priority
        for _ in range(3):
            fabric.send(flow, length_bytes=PACKET_BYTES, content=None)
    fabric.run(until_ns=10**6)
    assert order == [0, 7, 7, 7, 6, 6, 6, 2, 3, 0, 2, 3, 0, 2, 3]  # the first one was alone when it came


def test_marks__by_the_queue_that_a_packet_leaves_behind_and_in_switches_only() -> None:
    marking = SwitchProfile(classes={LOSSY: ClassProfile(red=RedProfile(3 * PACKET_BYTES, 3 * PACKET_BYTES))})
    fabric = VirtualFabric(star(2), switches=marking)
    marks: list[bool] = []
    fabric.attach("h2", lambda packets, _now_ns: marks.extend(packet.marked for packet in packets))
    port_of(fabric, "s1", "h2").pause(LOSSY, for_ns=50_000)  # all are there when it goes on
    send(fabric, "h1", "h2", packets=10, priority=LOSSY)
    fabric.run(until_ns=10**6)
    assert marks == [left > 3 for left in range(9, -1, -1)]
    assert port_of(fabric, "h1", "s1").marked == 0


def test_storm__takes_no_packet_and_heeds_no_pause_until_pauses_cease() -> None:
    watched = replace(PFC, watchdog=WatchdogProfile(poll_ms=1, detection_ms=2, restoration_ms=4))
    fabric = VirtualFabric(star(4), switches=watched)
    times = arrivals(fabric, "h2")
    stuck = port_of(fabric, "s1", "h3")
    for at_ms in range(8):  # h3 goes on pausing
        fabric.at(at_ms * 10**6, lambda _now_ns: stuck.pause(LOSSLESS, for_ns=10**8))
    send(fabric, "h1", "h3", packets=3)
    fabric.run(until_ns=1_900_000)
    assert not stuck.storming, "not paused for the detection time"
    fabric.run(until_ns=4_500_000)
    assert (stuck.storming, stuck.paused, stuck.discarded) == (1 << LOSSLESS, 0, 3)
    assert fabric.switches["s1"].held_bytes == 0
    send(fabric, "h1", "h3", packets=2)  # towards the storm
    send(fabric, "h3", "h2", packets=4)  # from where it comes
    fabric.run(until_ns=10_500_000)
    assert (stuck.storming, times) == (1 << LOSSLESS, []), "its last pause came at 7 ms"
    assert stuck.discarded + port_of(fabric, "s1", "h2").discarded == 3 + 2 + 4
    fabric.run(until_ns=11_500_000)
    assert not stuck.storming


@pytest.mark.parametrize("packets", [0, 600])
def test_watchdog__leaves_a_port_alone_in_which_nothing_waits_or_which_sends_between_pauses(packets: int) -> None:
    watched = replace(PFC, watchdog=WatchdogProfile(poll_ms=1, detection_ms=2, restoration_ms=2))
    fabric = VirtualFabric(star(2, to_last=replace(LINK, rate_bps=10**9)), switches=watched)
    slow = port_of(fabric, "s1", "h2")
    send(fabric, "h1", "h2", packets=packets)
    for at_us in range(0, 10_000, 100):  # with packets it sends one or two after each pause
        fabric.at(at_us * 1000, lambda _now_ns: slow.pause(LOSSLESS, for_ns=60_000 if packets else 10**8))
    fabric.run(until_ns=10**7)
    assert fabric.watchdog is not None
    assert fabric.watchdog.storms == 0
    assert (slow.packets > 50) == (packets > 0)


def test_watchdog__drops_what_waits_and_restores_the_port() -> None:
    watched = replace(PFC, watchdog=WatchdogProfile(poll_ms=1, detection_ms=2, restoration_ms=2))
    fabric = VirtualFabric(star(3), switches=watched)
    times = arrivals(fabric, "h3")
    stuck = port_of(fabric, "s1", "h3")
    stuck.pause(LOSSLESS, for_ns=10**12)
    send(fabric, "h1", "h3", packets=3)
    fabric.run(until_ns=10_000_000)
    assert fabric.watchdog is not None
    assert fabric.watchdog.storms == 1
    assert (stuck.discarded, times) == (3, [])
    assert not stuck.storming, "restored, as no pause came"
    send(fabric, "h2", "h3", packets=3)
    fabric.run(until_ns=20_000_000)
    assert len(times) == 3


@pytest.mark.parametrize("shift", [1, 2])
def test_ring__deadlocks_only_if_each_link_is_wanted_twice(shift: int) -> None:
    """Five switches, host i to host i + shift. With 1 no link is shared; with 2 the waits are a cycle."""
    names = range(5)
    topology = Topology(
        name="ring",
        hosts=tuple(f"h{n}" for n in names),
        switches=tuple(Switch(f"s{n}", "leaf") for n in names),
        links=(
            *(Link(f"h{n}", f"s{n}", LINK, LINK) for n in names),
            *(Link(f"s{n}", f"s{(n + 1) % 5}", LINK, LINK) for n in names),
        ),
    )
    fabric = VirtualFabric(topology, switches=PFC)
    for n in names:
        send(fabric, f"h{n}", f"h{(n + shift) % 5}", packets=2_000)
    fabric.run(until_ns=10**8)
    ports = [port for port in fabric.links.values() if isinstance(port, EgressPort)]
    cycle = deadlock(ports, now_ns=fabric.now_ns)
    if shift == 1:
        assert not cycle
        return
    ring = {f"s{n}>s{(n + 1) % 5}" for n in names}
    assert set(cycle) == ring
    assert cycle[0] == cycle[-1]
    followers = dict(pairwise(cycle))
    assert all(name.split(">")[1] == followers[name].split(">")[0] for name in ring), "each waits for the next"
    assert not deadlock(ports, now_ns=longest_pause_ns(RATE_BPS)), "it might have dissolved by then"
    before = [port.packets for port in ports]
    fabric.run(until_ns=2 * 10**9)
    assert [port.packets for port in ports] == before, "for ever"


def test_a_link_without_a_rate_is_refused() -> None:
    with pytest.raises(ShapeError, match="s1>h2: a port of a switch with a shared buffer needs a rate"):
        VirtualFabric(star(2, to_last=Shape(delay_us=1.0)), switches=PFC)


def test_a_buffer_without_room_is_refused() -> None:
    with pytest.raises(BackendError, match=r"^switch s1: .* do not fit into a buffer of 50000; give it more"):
        VirtualFabric(star(2), switches=replace(PFC, buffer_bytes=50_000))


@pytest.mark.parametrize(("gbps", "locks"), [(4.5, False), (5.5, True)])
def test_routing_loop__deadlocks_iff_the_rate_exceeds_n_b_over_ttl(gbps: float, *, locks: bool) -> None:
    """Hu et al., HotNets 2016: two switches, TTL 16, 40 Gbit/s: 5 Gbit/s. A packet crosses each link TTL / n times."""
    ttl, rate_bps = 16, 40_000_000_000
    link = Shape(rate_bps=rate_bps, delay_us=1.0)
    topology = Topology(
        name="loop",
        hosts=("h1", "h2"),
        switches=(Switch("s1", "leaf"), Switch("s2", "leaf")),
        links=(Link("h1", "s1", link, link), Link("h2", "s2", link, link), Link("s1", "s2", link, link)),
    )
    fabric = VirtualFabric(topology, switches=PFC)
    flow = fabric.flow(fabric.address("h1"), source_port=1, destination=fabric.address("h2"), destination_port=2)
    flow.priority = LOSSLESS
    expired = VirtualLink("expired", shape=None, seed=0, events=EventQueue())
    expired.failures = 1
    forth, back = fabric.links["s1", "s2"], fabric.links["s2", "s1"]
    flow.links = (fabric.links["h1", "s1"], *(forth, back) * (ttl // 2), expired)
    for number in range(5_000):
        fabric.at(
            round(number * PACKET_BYTES * 8 / gbps),
            lambda _: fabric.send(flow, length_bytes=PACKET_BYTES, content=None),
        )
    fabric.run(until_ns=10**9)
    ports = [port for port in fabric.links.values() if isinstance(port, EgressPort)]
    assert bool(deadlock(ports, now_ns=fabric.now_ns)) == locks
    assert (expired.blackholed == 5_000) != locks


def test_counters__tell_pauses_and_what_there_was_no_room_for() -> None:
    shallow = replace(PFC, classes={**PFC.classes, LOSSY: ClassProfile(alpha=1 / 64)})
    fabric = VirtualFabric(star(5), switches=shallow)
    for number in range(4):
        send(fabric, f"h{number + 1}", "h5", packets=300, priority=LOSSLESS if number else LOSSY)
    fabric.run(until_ns=10**9)
    counters = fabric.counters()
    assert counters["h2>s1"]["pauses"] > 0
    assert counters["s1>h5"]["overlimit"] == fabric.switches["s1"].dropped[LOSSY] > 0
    assert counters["s1>h5"]["packets"] == 1_200 - counters["s1>h5"]["overlimit"]
