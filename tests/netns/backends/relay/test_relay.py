"""The relay process on real TAPs. Times are checked strictly where early is wrong, widely where the host is late."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from netns.backends.relay.client import request
from netns.backends.relay.relay import MAX_COALESCE_NS, MIN_COALESCE_NS, coalesce_ns
from netns.errors import BackendError
from netns.netem.shape import Shape
from netns.processes import start_time_ticks
from tests.patience import wait_until
from tests.programs import run_to_end

if TYPE_CHECKING:
    from tests.netns.backends.conftest import TapPair

pytestmark = pytest.mark.root

HEADERS_BYTES = 14 + 20 + 8


def received(endpoint: socket.socket, *, count: int) -> list[bytes]:
    return [endpoint.recv(65536) for _ in range(count)]


def await_end(pid: int) -> None:
    """Wait for a process to end."""
    wait_until(lambda: start_time_ticks(pid) is None)


def settled(pair: TapPair, *, frames: int) -> dict[str, int]:
    """Wait until `frames` frames have an outcome; return the counters."""

    def outcomes() -> int:
        counters = pair.counters()
        return counters["packets"] + counters["dropped"] + counters["overlimit"]

    wait_until(lambda: outcomes() >= frames)
    return pair.counters()


def test_delay_is_that_of_both_directions(pair: TapPair) -> None:
    pair.relay(ab=Shape(delay_us=20_000), ba=Shape(delay_us=30_000))
    with pair.udp("a") as here, pair.udp("b") as there:
        sent_at = time.monotonic()
        here.sendto(b"ping", (pair.address_b, there.getsockname()[1]))
        data, sender = there.recvfrom(100)
        arrived_at = time.monotonic()
        there.sendto(data, sender)
        assert here.recv(100) == b"ping"
        returned_at = time.monotonic()
    assert arrived_at - sent_at >= 0.020
    assert returned_at - arrived_at >= 0.030


def test_counters_add_up(pair: TapPair) -> None:
    pair.relay(ab=Shape(delay_us=2000, loss_percent=20, rate_bps=50_000_000, limit_packets=50))
    with pair.udp("a") as here:
        for _ in range(500):
            here.sendto(bytes(1000), (pair.address_b, 7))
    counters = settled(pair, frames=500)
    assert counters["packets"] + counters["dropped"] + counters["overlimit"] == 500
    assert counters["bytes"] == counters["packets"] * (HEADERS_BYTES + 1000)
    assert counters["queued"] == counters["tap_drops"] == 0
    assert counters["packets"] >= 50, "as many as the limit holds must get through"
    assert counters["overlimit"] > 0
    assert 50 < counters["dropped"] < 150, "20 % of 500, within five standard deviations"
    answer = request(pair.control, {"op": "counters"})
    assert answer["cpu_seconds"] > 0
    assert 0 < answer["late_mean_us"] <= answer["late_max_us"]


def test_rate_is_never_exceeded_and_keeps_order(pair: TapPair) -> None:
    pair.relay(ab=Shape(rate_bps=10_000_000))
    with pair.udp("a") as here, pair.udp("b") as there:
        started_at = time.monotonic()
        for number in range(200):
            here.sendto(bytes([number]) * 1000, there.getsockname())
        arrived = received(there, count=200)
        seconds = time.monotonic() - started_at
    assert [data[0] for data in arrived] == list(range(200))
    # The estimated arrival of the first may be a little before it was sent: any time since the last read.
    assert seconds >= 0.97 * 200 * (HEADERS_BYTES + 1000) * 8 / 10_000_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal__removes_everything(pair: TapPair, number: signal.Signals) -> None:
    pid = pair.relay(ab=Shape(delay_us=10**6))
    with pair.udp("a") as here:
        here.sendto(b"held", (pair.address_b, 7))
    os.kill(pid, number)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert not pair.control.exists()
    assert (pair.directory / "relay.log").read_text() == ""
    pair.relay()  # the devices are free again


def test_it_ends_when_its_devices_are_deleted(pair: TapPair) -> None:
    pid = pair.relay()
    for name in (pair.a, pair.b):
        subprocess.run(["ip", "-n", name, "link", "delete", "tap0"], check=True)
    await_end(pid)


def test_it_ends_when_its_namespaces_are_deleted(pair: TapPair) -> None:
    """A namespace that is deleted by name exists as long as a TAP in it is open: the relay must close it."""
    pid = pair.relay()
    for name in (pair.a, pair.b):
        subprocess.run(["ip", "netns", "delete", name], check=True)
    await_end(pid)
    assert not pair.control.exists()


def test_relays_remaining_links(pair: TapPair) -> None:
    pid = pair.relay()
    subprocess.run(["ip", "-n", pair.b, "link", "delete", "tap0"], check=True)
    with pair.udp("a") as here:
        for _ in range(3):
            here.sendto(b"to nowhere", (pair.address_b, 7))
    wait_until(lambda: pair.counters()["tap_drops"] >= 3)
    assert start_time_ticks(pid) is not None


def test_an_idle_relay_sleeps(pair: TapPair) -> None:
    pair.relay(ab=Shape(delay_us=10**6))
    with pair.udp("a") as here:
        here.sendto(b"held for a second", (pair.address_b, 7))
    before = request(pair.control, {"op": "counters"})["cpu_seconds"]
    select.select([], [], [], 0.3)
    assert request(pair.control, {"op": "counters"})["cpu_seconds"] - before < 0.1


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "usage: python -m netns.backends.relay.relay SPEC.json"),
        (["a", "b"], 2, "usage: python -m netns.backends.relay.relay SPEC.json"),
        (["/nowhere/relay.json"], 1, "relay: /nowhere/relay.json: No such file or directory"),
    ],
)
def test_main__bad_flow(arguments: list[str], status: int, message: str) -> None:
    command = [sys.executable, "-m", "netns.backends.relay.relay", *arguments]
    ran = run_to_end(command)
    assert (ran.returncode, ran.stderr) == (status, message + "\n")


def test_failed_start_releases_everything(pair: TapPair) -> None:
    spec = pair.spec()
    spec.write_text(spec.read_text().replace(str(pair.control), str(Path("/nowhere/relay.sock"))))
    command = [sys.executable, "-m", "netns.backends.relay.relay", str(spec)]
    ran = run_to_end(command, input="go\n")
    assert (ran.returncode, ran.stderr) == (1, "relay: /nowhere/relay.sock: cannot listen: No such file or directory\n")
    pair.relay()
    with pytest.raises(BackendError, match="another process holds it"):
        pair.relay()


@pytest.mark.parametrize(
    ("shapes", "expected_ns"),
    [
        ([Shape(delay_us=500), Shape(delay_us=20_000)], MAX_COALESCE_NS),
        ([Shape(delay_us=500), Shape(delay_us=200)], 200_000),
        ([Shape(delay_us=500, jitter_us=300)], 200_000),
        ([Shape(delay_us=50)], MIN_COALESCE_NS),
        ([Shape(delay_us=500), Shape(loss_percent=100)], MAX_COALESCE_NS),
        ([Shape(loss_percent=100)], MIN_COALESCE_NS),
    ],
)
def test_rest_ns__is_no_longer_than_the_shortest_delay(shapes: list[Shape], expected_ns: int) -> None:
    assert coalesce_ns(shapes) == expected_ns
