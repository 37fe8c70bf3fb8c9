"""The fabric adapter on a real lab: uplink counters, loss, blackholes, and their removal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import cast

import pytest

from netns.lab.lab import Lab
from netns.netem.shape import Shape
from netns.topology.model import leaf_spine, reference
from scripts.compare.errors import CompareError, UnavailableError
from scripts.compare.fabric import RECEIVER, SENDER, Fabric
from srd.perf.tcp_socket import CUBIC, why_unavailable
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def fabric() -> Iterator[Fabric]:
    with Lab.up(reference(name=f"cmp{os.getpid()}")) as lab:
        yield Fabric(lab)


ECHO = """
import select, socket, sys
socks = []
for address in sys.argv[1:]:
    socks.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    socks[-1].bind((address, 7007))
print("ready", flush=True)
while True:
    for sock in select.select(socks, [], [])[0]:
        data, peer = sock.recvfrom(100)
        sock.sendto(data, peer)
"""
PROBE = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echoed = 0
sock.settimeout(float(sys.argv[3]))
for number in range(int(sys.argv[2])):
    sock.sendto(bytes(50), (sys.argv[1], 7007))
    try:
        echoed += len(sock.recv(100)) == 50
    except TimeoutError:
        pass
print(echoed)
"""


@pytest.fixture(scope="module", autouse=True)
def echo(fabric: Fabric) -> Iterator[None]:
    """The receiver echoes datagrams from the address that they came to, so that they take the same spine back."""
    addresses = [fabric.address(RECEIVER), *(fabric.pinned_address(RECEIVER, spine) for spine in fabric.spines)]
    command = fabric.command(RECEIVER, [sys.executable, "-S", "-c", ECHO, *addresses])
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        process.kill()


def echoes(fabric: Fabric, address: str, *, count: int = 20, within_s: float = PATIENCE_S) -> int:
    """How many of `count` datagrams from the sender to `address` return."""
    command = fabric.command(SENDER, [sys.executable, "-S", "-c", PROBE, address, str(count), str(within_s)])
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_fabric__is_the_reference(fabric: Fabric) -> None:
    assert fabric.kind in ("relay", "kernel")
    assert fabric.spines == ("spine1", "spine2", "spine3", "spine4")
    assert fabric.capacity_bps == 1_000_000_000


def test_uplink_bytes__counts_the_pinned_spine_only(fabric: Fabric) -> None:
    before = fabric.uplink_bytes()
    assert echoes(fabric, fabric.pinned_address(RECEIVER, "spine3")) == 20
    delta = [after - then for then, after in zip(before, fabric.uplink_bytes(), strict=True)]
    assert delta[2] >= 20 * 78
    assert sum(delta) - delta[2] < 78


def test_blackhole__kills_one_spine_both_ways_until_restored(fabric: Fabric) -> None:
    fabric.blackhole("spine2")
    try:
        assert echoes(fabric, fabric.pinned_address(RECEIVER, "spine2"), count=5, within_s=0.2) == 0
        assert echoes(fabric, fabric.pinned_address(RECEIVER, "spine1"), count=5) == 5
    finally:
        fabric.restore()
    assert echoes(fabric, fabric.pinned_address(RECEIVER, "spine2"), count=5) == 5


def test_set_loss__meets_each_direction_once(fabric: Fabric) -> None:
    """30 % once each way leave 49 % of the round trips; twice each way would leave 24 %."""
    fabric.set_loss(30.0)
    try:
        echoed = echoes(fabric, fabric.pinned_address(RECEIVER, "spine4"), count=200, within_s=0.05)
    finally:
        fabric.restore()
    assert 70 <= echoed <= 126  # 98 expected, 4 standard deviations of 7.1


def test_relay_cpu_seconds__grows_where_there_is_a_relay(fabric: Fabric) -> None:
    before = fabric.relay_cpu_seconds()
    if fabric.kind == "kernel":
        assert before is None
        return
    echoes(fabric, fabric.address(RECEIVER))
    after = fabric.relay_cpu_seconds()
    assert before is not None
    assert after is not None
    assert after > before


def test_add_subflow_endpoints__names_all_spines_but_the_first(fabric: Fabric) -> None:
    if reason := why_unavailable(algorithm=CUBIC, mptcp=True):
        pytest.skip(reason)
    fabric.add_subflow_endpoints()
    shown = subprocess.run(
        fabric.command(SENDER, ["ip", "mptcp", "endpoint", "show"]), capture_output=True, text=True, check=True
    ).stdout
    pinned = [fabric.pinned_address(SENDER, spine) for spine in fabric.spines]
    assert [address in shown for address in pinned] == [False, True, True, True]
    with pytest.raises(UnavailableError, match="mptcp endpoint add"):
        fabric.add_subflow_endpoints()  # a second time: the kernel refuses, and the error contains its reason


def test_capacity__needs_a_rate() -> None:
    class Planned:
        topology = leaf_spine(name="plain")
        backend = "relay"

    with pytest.raises(CompareError, match="leaf1 and spine1: no shaped link"):
        _ = Fabric(cast("Lab", Planned())).capacity_bps
    Planned.topology = leaf_spine(name="plain", shape=Shape(delay_us=500))
    with pytest.raises(CompareError, match="leaf1-spine1: has no rate"):
        _ = Fabric(cast("Lab", Planned())).capacity_bps
