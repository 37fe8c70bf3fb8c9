"""netns.observe.route_probe: ports keep their spine, every spine is used, and problems are reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from netns.errors import BackendError, TopologyError
from netns.faults.faults import fail
from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.observe.route_probe import FIRST_PORT, SpineMap, probe_spines
from netns.topology.addressing import IpVersion
from netns.topology.model import Ecmp, leaf_spine, reference
from tests.netns.conftest import unique_name
from tests.netns.exchange import PORT, udp_socket, uplinks
from tests.patience import wait_until

pytestmark = pytest.mark.lab(replace(reference(), ipv6=True), scope="module")

PORTS = 64


def path_map(seen: dict[int, tuple[str, ...]]) -> SpineMap:
    return SpineMap(source="h1", destination="h2", spines=("s1", "s2"), seen=seen)


def test_path_map__shares_and_problems() -> None:
    good = path_map({1: ("s1", "s1"), 2: ("s2", "s2"), 3: ("s2",), 4: ("s2",)})
    assert good.shares == {"s1": 0.25, "s2": 0.75}
    assert good.problems == []


def test_path_map__bad_flow() -> None:
    bad = path_map({1: ("s1", "s2"), 2: (), 3: ("s1",), **dict.fromkeys(range(10, 16), ())})
    assert (bad.unstable, bad.unanswered[:2], bad.shares["s2"]) == ((1,), (2, 10), 0)
    assert bad.problems == [
        "h1 to h2: s2 is never used",
        "h1 to h2: port 1: not always the same spine",
        "h1 to h2: 7 ports 2, 10, 11, 12, 13 ...: no answer",
    ]
    assert path_map({}).shares == {"s1": 0, "s2": 0}


@pytest.mark.root
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(("source", "destination"), [("h1", "h2"), ("h2", "h1")])
def test_trace_paths__every_spine_is_used_and_every_port_stable(
    lab: Lab, source: str, destination: str, version: IpVersion
) -> None:
    found = probe_spines(lab, source=source, destination=destination, ports=PORTS, version=version)
    assert found.problems == []
    assert list(found.seen) == list(range(FIRST_PORT, FIRST_PORT + PORTS))
    assert all(0.1 < share < 0.45 for share in found.shares.values()), found.shares


@pytest.mark.root
@pytest.mark.parametrize("version", [4, 6])
def test_trace_paths__agrees_with_the_counters(lab: Lab, version: IpVersion) -> None:
    """Data of a port takes the spine that its TTL probes found, with the same destination port."""
    probed = probe_spines(lab, source="h1", destination="h2", ports=16, version=version)
    source, target = (lab.address(host, version=version) for host in ("h1", "h2"))
    before = uplinks(lab)
    for port in probed.seen:
        with (
            udp_socket(lab, "h1", address=source, port=port) as sender,
            udp_socket(lab, "h2", address=target, port=33434) as receiver,
        ):
            sender.sendto(b"x", (target, 33434))
            receiver.recv(10)
    after = uplinks(lab)
    wanted = Counter(names[0] for names in probed.seen.values())
    assert {spine: after[spine] - before[spine] for spine in after} == {spine: wanted[spine] for spine in after}


@pytest.mark.root
def test_connected_sockets_take_the_same_spine(lab: Lab) -> None:
    """Policy 3 hashes the packet alone; policy 1 would follow the random hash of a connected socket."""

    def carried(*, connected: bool) -> list[int]:
        before = uplinks(lab)
        with udp_socket(lab, "h1", port=40_000) as sender, udp_socket(lab, "h2") as receiver:
            target = (lab.address("h2"), PORT)
            if connected:
                sender.connect(target)
                sender.send(b"x")
            else:
                sender.sendto(b"x", target)
            receiver.recv(10)
        return [after - before[spine] for spine, after in uplinks(lab).items()]

    unconnected = carried(connected=False)
    assert sum(unconnected) == 1
    assert [carried(connected=True) for _ in range(8)] == [unconnected] * 8


@pytest.mark.root
def test_trace_paths__follow_from_the_seed(lab: Lab) -> None:
    found = probe_spines(lab, source="h1", destination="h2", ports=32).seen
    with Lab.up(replace(lab.topology, name=unique_name())) as same:
        assert probe_spines(same, source="h1", destination="h2", ports=32).seen == found
    with Lab.up(replace(lab.topology, name=unique_name(), seed=2)) as other:
        differs = probe_spines(other, source="h1", destination="h2", ports=32).seen != found
    assert differs == (not any("hash_seed" in note for note in lab.notes)), "without the sysctl all hash alike"


@pytest.mark.root
def test_trace_paths__reports_a_blackholed_spine(lab: Lab) -> None:
    link = lab.topology.link("leaf1-spine3")
    lab.reshape(link.name, ab=Shape(loss_percent=100))
    try:
        found = probe_spines(lab, source="h1", destination="h2", ports=32)
    finally:
        lab.reshape(link.name, ab=link.shape_ab)
    assert "h1 to h2: spine3 is never used" in found.problems
    assert len(found.unanswered) == 32 - sum(bool(names) for names in found.seen.values()) > 0


@pytest.mark.root
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(("ecmp", "stay"), [("hash-threshold", False), ("resilient", True)])
def test_removed_next_hop__other_flows_move_or_stay(
    ecmp: Ecmp,
    version: IpVersion,
    stay: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """In a resilient group only the flows of the removed spine move."""
    with Lab.up(replace(leaf_spine(name=unique_name()), ipv6=True, ecmp=ecmp)) as lab:
        look = partial(probe_spines, lab, source="h1", destination="h2", ports=128, version=version)
        before = look().seen
        fail(lab, "leaf1-spine2", carrier=True)
        wait_until(lambda: not any("spine2" in names for names in look().seen.values()))
        after = look()
        assert after.unstable + after.unanswered == ()
        moved = [port for port, names in before.items() if "spine2" not in names and after.seen[port] != names]
        assert (not moved) == stay


@pytest.mark.root
def test_trace_paths__no_ipv6_bad_flow(lab_name: str) -> None:
    with (
        Lab.up(leaf_spine(name=lab_name)) as lab,
        pytest.raises(TopologyError, match=r"has no IPv6 addresses; set ipv6: true in its file$"),
    ):
        probe_spines(lab, source="h1", destination="h2", ports=4, version=6)


@pytest.mark.root
def test_trace_paths__bad_flow(lab: Lab) -> None:
    with udp_socket(lab, "h1", port=FIRST_PORT + 1), pytest.raises(BackendError, match="port 49153: Address already"):
        probe_spines(lab, source="h1", destination="h2", ports=4)
    with (
        Lab.up(leaf_spine(name=unique_name(), leaves=1, hosts_per_leaf=2)) as near,
        pytest.raises(BackendError, match="h1 and h2: no spine lies between them"),
    ):
        probe_spines(near, source="h1", destination="h2", ports=4)
