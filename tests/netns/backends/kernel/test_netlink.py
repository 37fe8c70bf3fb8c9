"""netns.backends.kernel.netlink: operations on real namespaces, and errors that name them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

import netns.programs
from netns.backends.kernel.netlink import (
    add_namespace,
    apply,
    delete_namespace,
    in_namespace,
    run_tool,
    sent_statistics,
)
from netns.errors import BackendError
from netns.lab.operations import (
    AddAddress,
    AddRoute,
    AddTap,
    AddVeth,
    Hop,
    InNamespace,
    SetNetem,
    SetOffloads,
    SetState,
    SetSysctl,
    SyncCarrier,
)
from netns.netem.shape import Shape
from netns.signals import signals_raise
from tests.netns.conftest import unique_name
from tests.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.root


@pytest.fixture
def two() -> Iterator[tuple[str, str]]:
    """Two empty namespaces."""
    names = unique_name(), unique_name()
    for name in names:
        add_namespace(name)
    try:
        yield names
    finally:
        for name in names:
            delete_namespace(name)


def veth(two: tuple[str, str]) -> AddVeth:
    return AddVeth(two[0], "one", "02:00:00:00:00:01", two[1], "two", "02:00:00:00:00:02", 1500)


def test_apply__builds_and_counts(two: tuple[str, str]) -> None:
    a, b = two
    steps: list[InNamespace] = [
        veth(two),
        AddTap(a, "tap", "02:00:00:00:00:03", 9000, 77),
        AddAddress(a, "one", "10.9.0.1/31"),
        AddAddress(b, "two", "10.9.0.0/31"),
        SetState(a, "one", "up"),
        SetState(b, "two", "up"),
        SetState(a, "tap", "up"),
        SetOffloads(a, "one", (("tso", "off"),)),
        SetSysctl(a, "net.ipv4.ip_forward", 1),
        SyncCarrier(a, "one"),
        SyncCarrier(b, "two"),
        AddRoute(a, "10.9.9.0/24", (Hop("10.9.0.0", "one"),)),
    ]
    assert apply(steps) == []
    assert run_tool("ip", "-n", a, "route", "show", "10.9.9.0/24").split()[:5] == [
        "10.9.9.0/24",
        "via",
        "10.9.0.0",
        "dev",
        "one",
    ]
    assert "mtu 9000" in run_tool("ip", "-n", a, "link", "show", "tap")
    assert "qlen 77" in run_tool("ip", "-n", a, "link", "show", "tap")
    read = Path("/proc/sys/net/ipv4/ip_forward").read_text
    assert (in_namespace(a, read), in_namespace(b, read)) == ("1\n", "0\n")
    with in_namespace(a, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
        sender.sendto(b"x" * 100, ("10.9.0.0", 9))
    wait_until(lambda: sent_statistics(a)["one"]["bytes"] >= 142)
    assert "queued" not in sent_statistics(a)["one"], "it has no netem"


@contextmanager
def busy_with_links(netns: str) -> Iterator[None]:
    """Have another process hold the lock of all network configuration most of the time."""
    script = 64 * "link add lock type veth peer lock2\nlink set lock up\nlink delete lock\n"
    command = ["sh", "-c", 'while echo "$1" | ip -n "$0" -batch -; do :; done', netns, script]
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_sync_carrier__an_interface_takes_its_addresses(two: tuple[str, str]) -> None:
    """The kernel adds the routes to an interface's own addresses of IPv6 in a work queue, which waits for that lock."""
    a, b = two
    apply(
        [
            SetSysctl(a, "net.ipv6.conf.default.accept_dad", 0),
            veth(two),
            SetState(a, "one", "up"),
            SetState(b, "two", "up"),
        ]
    )
    read = Path("/proc/thread-self/net/ipv6_route").read_text
    with busy_with_links(b):
        for number in range(1, 21):
            added = [AddAddress(a, "one", f"fd09:{number:x}::{host:x}/64") for host in range(16, 80)]
            apply([*added, SyncCarrier(a, "one")])
            local = [line for line in in_namespace(a, read).splitlines() if line.startswith(f"fd09{number:04x}")]
            assert len([line for line in local if line.split()[1] == "80"]) == len(added)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (SetState("{}", "nope", "up"), "there is no interface nope"),
        (AddRoute("{}", "10.0.0.0/8", (Hop("10.9.0.9", "lo"),)), "route .* via 10.9.0.9 dev lo: "),
        (SetSysctl("{}", "net.ipv4.nope", 1), "sysctl .* net.ipv4.nope=1: No such file or directory"),
        (SetSysctl("{}", "net.ipv4.ip_forward", 2**70), "sysctl .*: Invalid argument"),
        (SetOffloads("{}", "lo", (("warp", "on"),)), "ethtool -K lo warp on: netlink error: bit name not found"),
        (SetNetem("{}", "nope", Shape(limit_packets=1)), "netem .*:nope limit 1: no interface with this name"),
    ],
)
def test_apply__bad_flow_names_the_step(two: tuple[str, str], step: InNamespace, message: str) -> None:
    named = replace(step, netns=two[0])
    with pytest.raises(BackendError, match=f"^{message}") as caught:
        apply([named])
    assert "\n" not in str(caught.value)


def test_apply__existing_object_bad_flow(two: tuple[str, str]) -> None:
    apply([veth(two)])
    with pytest.raises(BackendError, match=r"^veth .*:one - .*:two mtu 1500: File exists$"):
        apply([veth(two)])


def test_apply__optional_steps_are_reported(two: tuple[str, str]) -> None:
    missing = SetSysctl(two[0], "net.ipv4.nope", 1, optional=True)
    assert apply([missing, SetState(two[0], "lo", "up")]) == ["net.ipv4.nope"]


def test_add_namespace__bad_flow(two: tuple[str, str]) -> None:
    with pytest.raises(BackendError, match=f"^ip netns add {two[0]}: .*File exists$"):
        add_namespace(two[0])
    with pytest.raises(BackendError, match=r"^ip netns delete nope: .*No such file"):
        delete_namespace("nope")


def test_in_namespace__caller_keeps_its_namespace(two: tuple[str, str]) -> None:
    here = os.readlink("/proc/thread-self/ns/net")  # noqa: PTH115 - a name, not a path
    there = in_namespace(two[0], lambda: os.readlink("/proc/thread-self/ns/net"))  # noqa: PTH115
    assert there != here
    with pytest.raises(ZeroDivisionError):
        in_namespace(two[0], lambda: 1 / 0)
    with pytest.raises(BackendError, match="there is no network namespace nope"):
        in_namespace("nope", os.getpid)
    assert os.readlink("/proc/thread-self/ns/net") == here  # noqa: PTH115
    assert threading.active_count() == 1


def test_in_namespace__a_signal_waits_for_the_work(two: tuple[str, str]) -> None:
    """The work ends before the exception is raised, so that nothing is created after the undoing."""
    finished: list[bool] = []
    signalled = threading.Event()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signalled.wait(PATIENCE_S), "the caller gets the signal while it waits"
        finished.append(True)

    def interrupted() -> None:
        with signals_raise():
            handler = signal.getsignal(signal.SIGTERM)
            assert callable(handler)

            def handle(number: int, frame: FrameType | None) -> None:
                signalled.set()
                handler(number, frame)

            signal.signal(signal.SIGTERM, handle)
            try:
                in_namespace(two[0], work)
            finally:
                assert finished, "it went on behind our back"

    with pytest.raises(SystemExit):
        interrupted()


def test_apply__works_under_a_running_loop(two: tuple[str, str]) -> None:
    """pyroute2's event loop must not interfere with the caller's, and must not leak descriptors."""

    async def inside_a_loop() -> None:
        apply([veth(two)])

    asyncio.run(inside_a_loop())
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count
    sent_statistics(two[0])
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_run_tool__a_hung_tool_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns.programs, "WITHIN_S", 0.05)
    with pytest.raises(BackendError, match="timed out"):
        run_tool("sleep", "5")
