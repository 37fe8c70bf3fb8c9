"""netns.backends.virtual.fabric: topologies in virtual time: delivery, failures, counters, the same bytes for a
seed."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netns.backends.virtual.event_queue import Action
from netns.backends.virtual.fabric import VirtualFabric
from netns.backends.virtual.virtual_link import JsonLines, Packet, PacketFlow
from netns.errors import BackendError, ShapeError, TopologyError
from netns.faults.schedule import ScheduledEvent
from netns.netem.shape import Shape
from netns.topology.addressing import IpVersion
from netns.topology.model import Link, Switch, Topology, leaf_spine
from tests.netns.strategies import TOPOLOGIES

MS = 1_000_000
LINK = Shape(delay_us=100, rate_bps=10**9, limit_packets=50)


def sending(fabric: VirtualFabric, flow: PacketFlow, *, length_bytes: int) -> Action:
    return lambda _: fabric.send(flow, length_bytes=length_bytes, content=None)


def exchange(fabric: VirtualFabric, *, seed: int, packets: int) -> list[tuple[str, int, int]]:
    """Every host sends to random others at random times; return (host, time, number) of everything that arrives."""
    rng, arrived = Random(seed), list[tuple[str, int, int]]()
    for host in fabric.topology.hosts:

        def receive(batch: list[Packet], now_ns: int, host: str = host) -> None:
            arrived.extend((host, now_ns, packet.number) for packet in batch)

        fabric.attach(host, receive)
    for _ in range(packets):
        source, destination = rng.sample(fabric.topology.hosts, 2)
        flow = fabric.flow(
            fabric.address(source),
            source_port=rng.randrange(1 << 16),
            destination=fabric.address(destination),
            destination_port=7,
        )
        fabric.at(rng.randrange(MS), sending(fabric, flow, length_bytes=rng.randrange(60, 1280)))
    fabric.run(until_ns=60_000 * MS)
    return arrived


@settings(max_examples=30)
@given(TOPOLOGIES, st.integers(0, 2**32 - 1))
def test_fabric__no_packet_is_made_or_vanishes_uncounted(topology: Topology, seed: int) -> None:
    if len(topology.hosts) < 2:
        return
    fabric = VirtualFabric(topology)
    arrived = exchange(fabric, seed=seed, packets=60)
    counters = fabric.counters().values()
    dropped = sum(
        virtual_link["dropped"] + virtual_link["overlimit"] + virtual_link["blackholed"] for virtual_link in counters
    )
    assert len({number for _, _, number in arrived}) == len(arrived) == 60 - dropped
    assert sum(virtual_link["packets"] for virtual_link in counters) == fabric.packet_hops


@pytest.mark.parametrize("seed", [1, 2])
def test_fabric__same_seed_same_trace_to_the_byte(seed: int) -> None:
    shape = Shape(delay_us=20, jitter_us=30, loss_percent=3, rate_bps=0)

    def trace(topology_seed: int) -> str:
        file = io.StringIO()
        topology = leaf_spine(leaves=3, spines=3, hosts_per_leaf=2, shape=shape, seed=topology_seed)
        exchange(VirtualFabric(topology, observe=JsonLines(file)), seed=seed, packets=500)
        return file.getvalue()

    assert trace(seed) == trace(seed)
    assert trace(seed) != trace(seed + 1)
    assert trace(seed).count("\n") > 2000


def test_send__delay_and_time_on_the_wire_of_each_link() -> None:
    """Hosts' links may be shaped here: 4 links of 1 Gbit/s and 100 us, 1,250 bytes: 4 x 110 us."""
    fabric = VirtualFabric(
        Topology(
            name="row",
            hosts=("h1", "h2"),
            switches=(Switch("leaf1", "leaf"), Switch("spine1", "spine"), Switch("leaf2", "leaf")),
            links=(
                Link("h1", "leaf1", LINK, LINK),
                Link("leaf1", "spine1", LINK, LINK),
                Link("leaf2", "spine1", LINK, LINK),
                Link("leaf2", "h2", LINK, LINK),
            ),
        )
    )
    arrived: list[tuple[object, int]] = []
    fabric.attach("h2", lambda packets, now_ns: arrived.extend((packet.content, now_ns) for packet in packets))
    flow = fabric.flow("10.0.1.1", source_port=1, destination=fabric.address("h2"), destination_port=2)
    assert flow is fabric.flow("10.0.1.1", source_port=1, destination="10.0.2.1", destination_port=2)
    fabric.send(flow, length_bytes=1250, content="a")
    fabric.send(flow, length_bytes=9015, content="beyond the MTU of 9,000 and its Ethernet header")
    assert fabric.run(until_ns=MS, done=lambda: bool(arrived))
    assert arrived == [("a", 440_000)]
    assert fabric.now_ns == 440_000
    assert (fabric.packet_hops, fabric.too_long) == (4, 1)
    assert fabric.links["leaf1", "spine1"].bytes == 1250
    assert fabric.counters()["spine1>leaf2"]["packets"] == 1


def steady(fabric: VirtualFabric, *, until_ns: int, gap_ns: int) -> list[int]:
    """h1 sends to h2 at a steady pace; return when packets arrived."""
    arrived: list[int] = []
    flow = fabric.flow(fabric.address("h1"), source_port=1, destination=fabric.address("h2"), destination_port=2)
    fabric.attach("h2", lambda packets, now_ns: arrived.extend([now_ns] * len(packets)))
    for at_ns in range(gap_ns // 2, until_ns, gap_ns):
        fabric.at(at_ns, sending(fabric, flow, length_bytes=1000))
    return arrived


@pytest.mark.parametrize("name", ["leaf1-spine1", "spine1", "h2", "leaf2"])
def test_fail__is_silent_and_ends(name: str) -> None:
    fabric = VirtualFabric(leaf_spine(spines=1, shape=Shape(delay_us=10)))
    arrived = steady(fabric, until_ns=10 * MS, gap_ns=MS // 10)
    fabric.fail(name, at_ns=2 * MS, for_ns=3 * MS)
    fabric.fail(name, at_ns=3 * MS, for_ns=3 * MS)  # overlaps: down until 6 ms
    fabric.run(until_ns=20 * MS)
    assert not [at_ns for at_ns in arrived if 2 * MS + 20_000 < at_ns < 6 * MS]
    assert len([at_ns for at_ns in arrived if at_ns < 2 * MS]) == 20
    assert len([at_ns for at_ns in arrived if at_ns >= 6 * MS]) == 40


@pytest.mark.parametrize("name", ["leaf1-spine1", "spine1"])
def test_narrow__longer_packets_vanish_and_shorter_ones_pass(name: str) -> None:
    fabric = VirtualFabric(leaf_spine(spines=1, shape=Shape(delay_us=10)))
    arrived = steady(fabric, until_ns=2 * MS, gap_ns=MS)
    fabric.narrow(name, mtu=1000 - 14)
    fabric.run(until_ns=10 * MS)
    assert len(arrived) == 2
    fabric.narrow(name, mtu=999 - 14)
    flow = fabric.flow(fabric.address("h1"), source_port=1, destination=fabric.address("h2"), destination_port=2)
    fabric.send(flow, length_bytes=1000, content=b"")
    fabric.run(until_ns=20 * MS)
    assert len(arrived) == 2
    assert sum(virtual_link.blackholed for virtual_link in fabric.links.values()) == 1


def swallow(_packets: list[Packet], _now_ns: int) -> None:
    """A callback that does nothing."""


def test_bad_flow() -> None:
    fabric = VirtualFabric(leaf_spine())
    with pytest.raises(TopologyError, match=r"spine9: neither a link nor a node of leaf-spine"):
        fabric.fail("spine9", at_ns=0)
    with pytest.raises(TopologyError, match="no such host"):
        fabric.attach("h9", swallow)
    with pytest.raises(TopologyError, match="no such host"):
        fabric.address("spine1")
    fabric.attach("h1", swallow)
    with pytest.raises(BackendError, match="host h1: has a simulated host already"):
        fabric.attach("h1", swallow)


def send(fabric: VirtualFabric, flow: PacketFlow, content: object, _now_ns: int) -> None:
    fabric.send(flow, length_bytes=100, content=content)


def test_play__a_plan_in_virtual_time() -> None:
    """The same events as on a lab: what fails is silent until its end, what is set is taken back."""
    fabric = VirtualFabric(leaf_spine(spines=1, shape=Shape(delay_us=100)))
    arrived: list[tuple[object, int]] = []
    fabric.attach("h2", lambda packets, now_ns: arrived.extend((packet.content, now_ns) for packet in packets))
    flow = fabric.flow(fabric.address("h1"), source_port=1, destination=fabric.address("h2"), destination_port=2)
    fabric.run_schedule(
        [
            ScheduledEvent(at_us=1000, action="fail", name="spine1", for_us=1000),
            ScheduledEvent(
                at_us=3000, action="set", name="leaf1-spine1", shape={"delay": "500us"}, for_us=1000, direction="ab"
            ),
            ScheduledEvent(at_us=5000, action="fail", name="leaf2-spine1"),
            ScheduledEvent(at_us=6000, action="repair", name="leaf2-spine1"),
        ]
    )
    for at_ms in (0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5):
        fabric.at(round(at_ms * 1e6), partial(send, fabric, flow, at_ms))
    fabric.run(until_ns=10**7)
    assert arrived == [
        (0.5, 700_000),
        (2.5, 2_700_000),
        (3.5, 4_100_000),
        (4.5, 4_700_000),
        (6.5, 6_700_000),
    ]


def test_play__a_change_of_an_unshaped_link_shapes_it() -> None:
    fabric = VirtualFabric(leaf_spine(spines=1))
    fabric.run_schedule([ScheduledEvent(at_us=0, action="set", name="leaf1-spine1", shape={"loss": "100%"})])
    flow = fabric.flow(fabric.address("h1"), source_port=1, destination=fabric.address("h2"), destination_port=2)
    fabric.at(1000, lambda _: fabric.send(flow, length_bytes=100, content=None))
    fabric.run(until_ns=10**6)
    assert fabric.counters()["leaf1>spine1"]["dropped"] == 1
    with pytest.raises(ShapeError, match="loss: 120 %"):
        fabric.run_schedule([ScheduledEvent(at_us=0, action="set", name="leaf1-spine1", shape={"loss": "120%"})])


def test_duplicates_corruption_and_marks_reach_the_station_as_on_a_wire() -> None:
    fabric = VirtualFabric(leaf_spine(spines=1, shape=Shape(duplicate_percent=100)))
    arrived: list[object] = []
    fabric.attach("h2", lambda packets, _: arrived.extend(packet.content for packet in packets))
    flow = fabric.flow(fabric.address("h1"), source_port=1, destination=fabric.address("h2"), destination_port=2)
    fabric.send(flow, length_bytes=100, content="x")
    fabric.run(until_ns=1)
    assert arrived == ["x"] * 4, "two links double it"
    bad = VirtualFabric(leaf_spine(spines=1, shape=Shape(corrupt_percent=100)))
    bad.attach("h2", lambda packets, _: arrived.extend(packet.content for packet in packets))
    bad.send(
        bad.flow(bad.address("h1"), source_port=1, destination=bad.address("h2"), destination_port=2),
        length_bytes=100,
        content="y",
    )
    bad.run(until_ns=1)
    assert "y" not in arrived, "its checksum is wrong"


@pytest.mark.parametrize("version", [4, 6])
def test_fail__with_its_carrier_flows_take_other_ways(version: IpVersion) -> None:
    """leaf1 loses the carrier of its uplink; packets on it are lost, later ones use other links."""
    fabric = VirtualFabric(replace(leaf_spine(spines=2, shape=Shape(delay_us=100)), ipv6=True))
    arrived: list[tuple[int, int]] = []
    fabric.attach("h2", lambda packets, _: arrived.extend(packet.content for packet in packets))
    ends = (fabric.address(host, version=version) for host in ("h1", "h2"))
    source, destination = ends
    flows = [fabric.flow(source, source_port=port, destination=destination, destination_port=2) for port in range(16)]
    on_spine1 = [flow for flow in flows if flow.links[1].name == "leaf1>spine1"]
    assert 0 < len(on_spine1) < len(flows)
    for at_us in (50, 150, 2000):
        for flow in flows:
            fabric.at(at_us * 1000, partial(send, fabric, flow, (at_us, flow.source_port)))
    fabric.fail("leaf1-spine1", at_ns=100_000, for_ns=MS, carrier=True)
    fabric.run(until_ns=10 * MS)
    ports = [flow.source_port for flow in flows]
    assert sorted(port for at_us, port in arrived if at_us == 150) == ports, "all of them went over spine2"
    assert sorted(port for at_us, port in arrived if at_us == 2000) == ports
    survivors = [port for port in ports if port not in [flow.source_port for flow in on_spine1]]
    assert sorted(port for at_us, port in arrived if at_us == 50) == survivors, "what was on the link is lost"
    assert fabric.links["leaf1", "spine1"].packets == len(on_spine1), "they are back where they were"


def test_play__carriers_add_up_and_come_back() -> None:
    fabric = VirtualFabric(leaf_spine(spines=2))
    flow = fabric.flow(fabric.address("h1"), source_port=1, destination=fabric.address("h2"), destination_port=2)
    spine = flow.links[1].name.removeprefix("leaf1>")
    other = {"spine1": "spine2", "spine2": "spine1"}[spine]
    fabric.run_schedule(
        [
            ScheduledEvent(at_us=0, action="fail", name=spine, carrier=True),
            ScheduledEvent(at_us=1000, action="fail", name=f"leaf1-{spine}", for_us=3000, carrier=True),
            ScheduledEvent(at_us=2000, action="repair", name=spine),
        ]
    )
    for at_ms, taken in ((0.5, other), (1.5, other), (3, other), (4.5, spine)):
        fabric.run(until_ns=round(at_ms * MS))
        assert [virtual_link.name for virtual_link in flow.links[1:3]] == [f"leaf1>{taken}", f"{taken}>leaf2"]
