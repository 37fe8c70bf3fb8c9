"""netns.lab.operations: printed lines, and undo operations."""

from __future__ import annotations

import pytest

from netns.lab.operations import (
    AddAddress,
    AddNamespace,
    AddNeighbour,
    AddNexthop,
    AddNexthopGroup,
    AddRoute,
    AddRule,
    AddTap,
    AddVeth,
    DeleteNamespace,
    Hop,
    Operation,
    RelayLink,
    SetCarrier,
    SetDown,
    SetNetem,
    SetOffloads,
    SetQuiet,
    SetSysctl,
    SetUp,
    StartRelay,
    StopRelay,
    SyncCarrier,
    undo,
)
from netns.netem.shape import Shape

RELAYED = RelayLink("a-b", "x-a", "b", "x-b", "a", Shape(delay_us=5), Shape(), 1, 2)
HOPS = (Hop("10.255.0.1", "s1"), Hop("10.255.0.3", "s2"))


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (AddNamespace("x-a"), "netns add x-a"),
        (DeleteNamespace("x-a"), "netns delete x-a"),
        (SetSysctl("x-a", "net.ipv4.ip_forward", 1), "sysctl x-a net.ipv4.ip_forward=1"),
        (SetSysctl("x-a", "k", 1, optional=True), "sysctl x-a k=1 (where the kernel has it)"),
        (AddVeth("x-a", "b", "m1", "x-b", "a", "m2", 9000), "veth x-a:b - x-b:a mtu 9000"),
        (AddTap("x-a", "b", "m1", 9000, 100), "tap x-a:b mtu 9000 txqueuelen 100"),
        (AddAddress("x-a", "b", "10.0.0.1/32"), "address x-a 10.0.0.1/32 dev b"),
        (SetUp("x-a", "b"), "up x-a:b"),
        (AddNeighbour("x-a", "b", "10.0.0.1", "m1"), "neighbour x-a 10.0.0.1 lladdr m1 dev b"),
        (
            AddRoute("x-a", "default", HOPS[:1], source="10.0.0.9"),
            "route x-a default via 10.255.0.1 dev s1 src 10.0.0.9",
        ),
        (
            AddRoute("x-a", "10.0.1.0/24", HOPS, table=101),
            "route x-a 10.0.1.0/24 nexthop via 10.255.0.1 dev s1 nexthop via 10.255.0.3 dev s2 table 101",
        ),
        (
            AddRoute("x-a", "10.0.1.0/24", HOPS, group=3),
            "route x-a 10.0.1.0/24 nhid 3",
        ),
        (AddNexthop("x-a", 1, HOPS[0]), "nexthop x-a id 1 via 10.255.0.1 dev s1"),
        (
            AddNexthopGroup("x-a", 3, (AddNexthop("x-a", 1, HOPS[0]), AddNexthop("x-a", 2, HOPS[1]))),
            "nexthop x-a id 3 group 1/2 type resilient buckets 128 idle_timer 1",
        ),
        (SetQuiet("x-a", "b"), "quiet x-a:b arp off multicast off"),
        (SetDown("x-a", "b"), "down x-a:b"),
        (SetCarrier("x-a", "b", "off"), "carrier x-a:b off"),
        (SyncCarrier("x-a", "b"), "settle x-a:b"),
        (AddRule("x-a", "10.101.0.0/16", 101), "rule x-a from 10.101.0.0/16 lookup 101"),
        (SetOffloads("x-a", "b", (("tso", "off"), ("gro", "on"))), "ethtool x-a:b tso off gro on"),
        (SetNetem("x-a", "b", Shape(limit_packets=9), seed=4), "netem x-a:b limit 9 seed 4"),
        (StartRelay("x", (RELAYED,)), "relay x carrying a-b"),
        (StopRelay("x"), "relay stop x"),
    ],
)
def test_str__is_the_line_of_the_plan(step: Operation, line: str) -> None:
    assert str(step) == line


def test_undo__objects_outside_namespaces_in_reverse_order() -> None:
    steps = (AddNamespace("x-a"), AddNamespace("x-b"), SetUp("x-a", "b"), StartRelay("x", (RELAYED,)))
    assert undo(steps) == (StopRelay("x"), DeleteNamespace("x-b"), DeleteNamespace("x-a"))
