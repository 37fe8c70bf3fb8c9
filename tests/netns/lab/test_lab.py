"""netns.lab.lab on real namespaces: what is built, carried, changed live, counted and removed."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from netns.backends.kernel.netlink import in_namespace, run_tool
from netns.errors import BackendError
from netns.lab.lab import Lab
from netns.lab.state import ROOT, LabDirectory
from netns.netem.shape import Shape
from netns.processes import ProcessIdentity
from netns.topology.model import leaf_spine, reference
from tests.netns.conftest import has_netem, unique_name
from tests.netns.exchange import PORT, TCP_SOURCE, crossed, running, tcp_sink, udp_socket, uplinks
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.root

FABRICS = ["relay", "kernel"] if has_netem() else ["relay"]
SEED = 20


def machine() -> tuple[object, ...]:
    """Everything that a lab must leave unchanged: namespaces, interfaces, records."""
    return (
        sorted(name.name for name in Path("/run/netns").glob(f"t{os.getpid()}-*")),
        [line.split()[0] for line in run_tool("ip", "-brief", "link").splitlines()],
        sorted(path.name for path in ROOT.glob(f"t{os.getpid()}-*")),
    )


@pytest.fixture(scope="module", params=FABRICS)
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A reference lab; tests restore its shapes."""
    with Lab.up(reference(name=unique_name()), backend=request.param) as made:
        yield made


def test_udp__crosses_and_is_delayed_both_ways(lab: Lab) -> None:
    with udp_socket(lab, "h1") as one, udp_socket(lab, "h2") as two:
        one.sendto(b"ping", (lab.address("h2"), PORT))
        data, back = two.recvfrom(100)
        assert (data, back) == (b"ping", (lab.address("h1"), PORT))
        two.sendto(b"pong", back)
        assert one.recv(100) == b"pong"


def test_tcp__crosses_intact(lab: Lab) -> None:
    print(f"seed {SEED}")
    content = random.Random(SEED).randbytes(2_000_000)
    with running(tcp_sink(lab, "h2")) as sink:
        argv = [sys.executable, "-c", TCP_SOURCE, lab.address("h2"), str(PORT)]
        subprocess.run(lab.command("h1", argv), input=content, check=True, timeout=PATIENCE_S)
        assert sink.stdout is not None
        assert sink.stdout.readline().strip() == hashlib.sha256(content).hexdigest()


def test_mtu__full_packets_cross_and_larger_ones_do_not(lab: Lab) -> None:
    with udp_socket(lab, "h1") as one, udp_socket(lab, "h2") as two:
        one.setsockopt(0, 10, 2)  # IP_MTU_DISCOVER: always set DF
        one.sendto(b"x" * 8972, (lab.address("h2"), PORT))
        assert len(two.recv(10_000)) == 8972
        with pytest.raises(OSError, match="Message too long"):
            one.sendto(b"x" * 8973, (lab.address("h2"), PORT))


def test_gso__the_fabric_sees_packets_not_super_packets(lab: Lab) -> None:
    before = uplinks(lab)
    with udp_socket(lab, "h1") as one, udp_socket(lab, "h2") as two:
        one.setsockopt(17, 103, 1000)  # UDP_SEGMENT
        one.sendto(b"x" * 6000, (lab.address("h2"), PORT))
        assert [len(two.recv(10_000)) for _ in range(6)] == [1000] * 6
    after = uplinks(lab)
    assert sum(after.values()) - sum(before.values()) == 6


def test_gro__the_receiving_host_joins_packets_again(lab_name: str) -> None:
    with Lab.up(leaf_spine(name=lab_name)) as lab, udp_socket(lab, "h1") as one, udp_socket(lab, "h2") as two:
        one.setsockopt(17, 103, 1000)  # UDP_SEGMENT
        two.setsockopt(17, 104, 1)  # UDP_GRO
        one.sendto(b"x" * 6000, (lab.address("h2"), PORT))
        sizes = [len(two.recv(10_000))]
        while sum(sizes) < 6000:
            sizes.append(len(two.recv(10_000)))
        assert len(sizes) < 6, sizes


@pytest.mark.parametrize("spine", ["spine1", "spine2", "spine3", "spine4"])
def test_pinned_addresses__really_take_their_spine(lab: Lab, spine: str) -> None:
    one, two = lab.pinned_addresses("h1")[spine], lab.pinned_addresses("h2")[spine]
    assert crossed(lab, source=lab.address("h1"), destination=two) == {spine: 5}
    assert crossed(lab, source=one, destination=lab.address("h2")) == {spine: 5}
    assert crossed(lab, source=one, destination=two) == {spine: 5}


def test_pinned_addresses__the_destination_decides_between_two(lab: Lab) -> None:
    one, two = lab.pinned_addresses("h1")["spine1"], lab.pinned_addresses("h2")["spine4"]
    assert crossed(lab, source=one, destination=two) == {"spine4": 5}


@pytest.mark.parametrize("ipv6", [False, True])
def test_idle_links_carry_nothing(lab: Lab, ipv6: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """No ARP, no IPv6 control traffic: otherwise seeded shapes would not be reproducible."""
    with Lab.up(replace(reference(name=unique_name()), ipv6=ipv6), backend=lab.backend) as fresh:
        crossed(fresh, source=fresh.address("h1"), destination=fresh.pinned_addresses("h2")["spine1"])
        counters = fresh.counters()
        assert counters["leaf1-spine1"]["ab"]["packets"] == 5
        assert counters["leaf1-spine1"]["ba"]["packets"] == 0
        assert all(
            direction["packets"] == 0
            for name, link in counters.items()
            if "spine1" not in name and not name.startswith("h")
            for direction in link.values()
        )


def test_ipv6__no_interface_has_anything_to_report(lab_name: str) -> None:
    """A multicast group beyond that of all nodes would be reported, some time in the next seconds."""
    with Lab.up(replace(reference(name=lab_name), ipv6=True)) as lab:
        for node in lab.topology.nodes:
            groups = in_namespace(lab.netns(node), Path("/proc/thread-self/net/igmp6").read_text)
            joined = {line.split()[2] for line in groups.splitlines() if line.split()[1] != "lo"}
            assert joined == {f"ff02{'0' * 27}1", f"ff01{'0' * 27}1"}


def test_reshape__blackhole_and_restore(lab: Lab) -> None:
    pinned = lab.pinned_addresses("h2")["spine2"]
    original = lab.topology.link("leaf1-spine2").shape_ab
    lab.reshape("leaf1-spine2", ab=Shape(loss_percent=100))
    before = lab.counters()["leaf1-spine2"]["ab"]
    with udp_socket(lab, "h1") as one, udp_socket(lab, "h2", address=pinned) as two:
        for _ in range(7):
            one.sendto(b"lost", (pinned, PORT))
        lab.reshape("leaf1-spine2", ab=original)
        one.sendto(b"found", (pinned, PORT))
        assert two.recv(100) == b"found"
    after = lab.counters()["leaf1-spine2"]["ab"]
    assert after["dropped"] - before["dropped"] == 7
    assert after["packets"] - before["packets"] == 1


def test_change__a_derived_limit_follows_until_one_is_given(lab: Lab) -> None:
    def now() -> tuple[str, object]:
        link = Lab.find(lab.name).status()["links"]["leaf1-spine2"]
        return link["ab"], link.get("derived")

    both = {"ab": ["limit"], "ba": ["limit"]}
    assert now() == ("limit 10 delay 500us rate 250mbit", both)
    lab.change("leaf1-spine2", {"delay": "20ms"})
    assert now() == ("limit 348 delay 20ms rate 250mbit", both)
    lab.change("leaf1-spine2", {"limit": 9, "delay": "500us"})
    assert now() == ("limit 9 delay 500us rate 250mbit", None)
    lab.change("leaf1-spine2", {"rate": "10mbit"}, direction="ab")
    assert now() == ("limit 9 delay 500us rate 10mbit", None)
    built = lab.topology.link("leaf1-spine2")
    lab.reshape("leaf1-spine2", ab=built.shape_ab, ba=built.shape_ba)
    assert now()[1] == both


def test_counters__agree_along_a_path(lab: Lab) -> None:
    before = lab.counters()
    crossed(lab, source=lab.address("h1"), destination=lab.pinned_addresses("h2")["spine3"], packets=9)
    after = lab.counters()
    for link, direction in (("h1-leaf1", "ab"), ("leaf1-spine3", "ab"), ("leaf2-spine3", "ba"), ("h2-leaf2", "ba")):
        assert after[link][direction]["packets"] - before[link][direction]["packets"] == 9
        assert after[link][direction]["bytes"] - before[link][direction]["bytes"] == 9 * (100 + 8 + 20 + 14)
        assert after[link][direction]["dropped"] == before[link][direction]["dropped"]


def test_status__of_a_healthy_lab(lab: Lab) -> None:
    status = lab.status()
    assert (status["phase"], status["problems"], status["backend"]) == ("up", [], lab.backend)
    assert status["hosts"]["h2"]["address"] == lab.address("h2")
    assert status["owner"] is not None
    assert status["owner"]["pid"] == os.getpid()
    relay = lab.relay_status()
    assert (relay is not None) == (lab.backend == "relay")
    if relay is not None:
        assert {"cpu_seconds", "late_mean_us", "late_max_us", "tap_drops"} <= relay.keys()
        assert relay["tap_drops"] == 0


@pytest.mark.parametrize("fabric", FABRICS)
def test_down__leaves_nothing(lab_name: str, fabric: str) -> None:
    before = machine()
    lab = Lab.up(reference(name=lab_name), backend=fabric)  # type: ignore[arg-type]  # one of the two
    relay = lab.status()["relay"]
    sleeper = subprocess.Popen(lab.command("h1", ["sleep", "60"]))
    while not lab.status()["processes"]:
        os.sched_yield()  # until ip has become sleep
    lab.down()
    assert machine() == before
    assert sleeper.wait(timeout=PATIENCE_S) == -15, "ended, because it would have kept its namespace"
    assert relay is None or not ProcessIdentity(**relay).alive
    lab.down()


def test_with__removes_the_lab_on_errors(lab_name: str) -> None:
    before = machine()
    lab = Lab.up(leaf_spine(name=lab_name))
    assert machine() != before
    with pytest.raises(ZeroDivisionError), lab:
        raise ZeroDivisionError
    assert machine() == before


def test_up__unshaped_needs_no_relay(lab_name: str) -> None:
    with Lab.up(leaf_spine(name=lab_name, leaves=1, spines=1, hosts_per_leaf=2, mtu=1500)) as lab:
        assert (lab.backend, lab.reason, lab.relay_status()) == ("kernel", "no link is shaped", None)
        with udp_socket(lab, "h1") as one, udp_socket(lab, "h2") as two:
            one.sendto(b"near", (lab.address("h2"), PORT))
            assert two.recv(100) == b"near"


def test_up__two_labs_side_by_side(lab_name: str) -> None:
    with (
        Lab.up(leaf_spine(name=lab_name, spines=1)) as one,
        Lab.up(leaf_spine(name=unique_name(), spines=1)) as other,
    ):
        assert one.address("h1") == other.address("h1")
        with udp_socket(one, "h1") as sender, udp_socket(other, "h2") as outsider:
            outsider.settimeout(0.1)
            sender.sendto(b"x", (one.address("h2"), PORT))
            with pytest.raises(TimeoutError):
                outsider.recv(10)


def test_up__after_the_relay_was_killed(lab_name: str) -> None:
    lab = Lab.up(reference(name=lab_name), backend="relay")
    pid = lab.status()["relay"]["pid"]
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert Lab.find(lab_name).status()["problems"] == [f"the relay (process {pid}) is dead"]
    with pytest.raises(BackendError, match="no relay answers"):
        lab.reshape("leaf1-spine1", ab=Shape())
    with Lab.up(reference(name=lab_name), backend="relay") as again:
        assert again.status()["problems"] == []


def test_up__after_the_owner_was_killed(lab_name: str) -> None:
    program = (
        "import signal, sys; from netns.lab.lab import Lab; from netns.topology.model import leaf_spine\n"
        "with Lab.up(leaf_spine(name=sys.argv[1])): print('ready', flush=True); signal.pause()"
    )
    with running([sys.executable, "-c", program, lab_name]):
        assert Lab.find(lab_name).status()["problems"] == []
    problems = Lab.find(lab_name).status()["problems"]
    assert len(problems) == 1
    assert problems[0].startswith("its owner (process ")
    with Lab.up(leaf_spine(name=lab_name)) as again:
        assert again.status()["problems"] == []


def test_up__existing_namespace_is_not_touched(lab_name: str) -> None:
    foreign = f"{lab_name}-leaf1"
    run_tool("ip", "netns", "add", foreign)
    try:
        with pytest.raises(BackendError, match=f"network namespace {foreign} exists and belongs to no lab"):
            Lab.up(leaf_spine(name=lab_name))
        assert not LabDirectory(lab_name).path.exists()
        assert in_namespace(foreign, os.getpid) == os.getpid()
    finally:
        run_tool("ip", "netns", "delete", foreign)
