"""srd.io.driver: two cores over loopback in one event loop; ICMP; full sockets; orderly ends."""

from __future__ import annotations

import errno
import random
import socket
import time
from collections.abc import Iterator

import pytest

from netns.backends.kernel.netlink import in_namespace, run_tool
from srd.io import syscalls
from srd.io.socket import open_socket
from srd.io.syscalls import Address
from srd.proto.events import Completion, MessageReceived
from srd.proto.send.sender import Sender
from srd.proto.wire.control import Ack, Datagram, PathReport
from srd.proto.wire.data import Burst
from srd.proto.wire.status import Status
from tests.failing import refusing
from tests.patience import PATIENCE_S, until
from tests.srd.io.exchange import wait_readable
from tests.srd.io.node import Node, completed, fill, join, loopback_sockets, node, nodes, received
from tests.srd.loopback import closed_port
from tests.srd.tunnel.cable import namespaces, set_up, veth

SEED = 13
CLOCK_ERROR_US = 20_000
"""Bound of the error of `wall_to_monotonic_s` on a busy host."""


def statuses(one: Node) -> list[Status]:
    """Those with which its requests completed, in this order."""
    return [event.status for event in one.events if isinstance(event, Completion)]


# -- messages -------------------------------------------------------------------------------------------------------


@pytest.mark.sources
async def test_driver__a_report_has_the_time_of_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends read one clock here. The kernel's timestamps are on the wall clock, a report's on the monotonic one.

    The offset of the two is measured, and where all readings are interrupted it may be wrong by as much as those take.
    """
    seen: list[tuple[PathReport, float]] = []
    handle_ack = Sender.handle_ack

    def watch(sender: Sender, ack: Ack, *, now: float, received_at: float) -> None:
        seen.extend((report, received_at) for report in ack.reports)
        handle_ack(sender, ack, now=now, received_at=received_at)

    monkeypatch.setattr(Sender, "handle_ack", watch)
    async with nodes() as (one, _):
        one.post(1 << 20)
        await one.until(completed)
    assert seen
    for report, arrived_at in seen:
        there_us = report.received_us - report.sent_us & 0xFFFFFFFF
        back_us = int(arrived_at * 1e6) - report.received_us & 0xFFFFFFFF
        there_us, back_us = ((us + 2**31) % 2**32 - 2**31 for us in (there_us, back_us))
        assert -CLOCK_ERROR_US < there_us < PATIENCE_S * 1e6
        assert -CLOCK_ERROR_US < back_us < PATIENCE_S * 1e6


# -- ICMP errors ----------------------------------------------------------------------------------------------------


@pytest.fixture
def closed_address() -> Iterator[Address]:
    """An address at which nothing listens."""
    with closed_port() as port:
        yield "127.0.0.1", port


# -- full sockets ---------------------------------------------------------------------------------------------------


class FlakySendmmsg:
    """Replaces sendmmsg: in one of `one_in` calls the socket is full, or takes one message only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, one_in: int) -> None:
        self.blocked = 0
        self.fds: list[tuple[int, int]] = []  # (file descriptor, path in the first header)
        self._rng = random.Random(SEED)
        self._one_in = one_in
        self._real = syscalls.sendmmsg
        monkeypatch.setattr(syscalls, "sendmmsg", self)

    def __call__(self, fd: int, *, messages: int, count: int) -> int:
        dice = self._rng.randrange(self._one_in)
        if dice == 0:
            self.blocked += 1
            raise BlockingIOError(errno.EAGAIN, "EAGAIN")
        return self._real(fd, messages=messages, count=1 if dice == 1 else count)


@pytest.mark.parametrize("one_in", [2, 3, 10])
async def test_driver__a_full_socket_delays_and_loses_nothing(monkeypatch: pytest.MonkeyPatch, one_in: int) -> None:
    """Each burst leaves by the socket of its path: otherwise losses would count for the wrong path."""
    async with nodes() as (one, two):
        hiccups = FlakySendmmsg(monkeypatch, one_in=one_in)
        payload = fill(one, 4 << 20)
        for number in range(1000):  # one is a few calls without errors
            if hiccups.blocked > 3:
                break
            one.post(4 << 20)
            (*_, message) = await two.until(received, count=number + 1)
            assert isinstance(message, MessageReceived)
            assert two.body(message) == payload
            for extent in message.extents:
                two.pool.drop(extent.region_offset, length=extent.length)
            two.core.release(two.peer, size_bytes=message.length, messages=1, now=time.monotonic())
            two.driver.wake()
        assert hiccups.blocked > 3
        ports = {index: sock.getsockname()[1] for index, sock in enumerate(one.sockets)}
        sources = two.core.peer(two.peer).addresses.sources
        assert {path: source.address[1] for path, source in sources.items()} == ports
        assert not one.failures, one.failures[0]


async def test_driver__an_icmp_error_does_not_lose_a_control_packet(closed_address: Address) -> None:
    (silent,) = loopback_sockets(1)
    with silent:
        async with node(accepting=False) as one:
            one.sockets[0].sendto(b"anyone?", closed_address)
            one.driver._send_datagram(Datagram(silent.getsockname(), 0, b"hello"))
            wait_readable(silent)
            assert silent.recv(100) == b"hello"


async def test_driver__an_icmp_error_does_not_hide_what_has_arrived(closed_address: Address) -> None:
    async with node(accepting=True) as two:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.sendto(b"no packet", two.sockets[0].getsockname())
            wait_readable(two.sockets[0])
            two.sockets[0].sendto(b"anyone?", closed_address)
            assert two.driver._read_socket(two.sockets[0]), "in the same call"
            assert two.core.malformed == 1


# -- a device whose queue is full -----------------------------------------------------------------------------------


@pytest.fixture
def slow_namespaces() -> Iterator[list[str]]:
    """Two namespaces joined by a veth pair; what the first sends leaves at 50 Mbit/s through a long queue."""
    with namespaces(2) as names:
        veth(*names, mtu=9000)
        for number, name in enumerate(names, 1):
            set_up(name, "eth0", f"10.8.0.{number}/24")
        run_tool(
            "tc",
            "-n",
            names[0],
            *["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "50mbit", "burst", "128k", "limit", "64m"],
        )
        yield names


@pytest.mark.root
async def test_driver__a_device_with_a_full_queue(slow_namespaces: list[str]) -> None:
    def sockets(host: str) -> list[socket.socket]:
        return [open_socket((host, 0), family=socket.AF_INET) for _ in range(2)]

    here, there = slow_namespaces
    ends = in_namespace(here, lambda: sockets("10.8.0.1")), in_namespace(there, lambda: sockets("10.8.0.2"))
    for sock in ends[0]:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 40_000)
    blocked = False
    async with (
        node(accepting=True, paths=2, sockets=ends[1]) as two,
        node(accepting=False, paths=2, sockets=ends[0]) as one,
    ):
        await join(one, two)
        payload = fill(one, 2 << 20)
        one.post(2 << 20)

        def is_complete() -> bool:
            nonlocal blocked
            assert not one.failures, one.failures[0]
            blocked = blocked or one.driver._full is not None
            return any(completed(event) for event in one.events)

        await until(is_complete, pause_s=0)
        message = await two.the_message()
        assert two.body(message) == payload
    assert blocked, "the socket was never full: the test is void"


# -- close ----------------------------------------------------------------------------------------------------------


async def test_close__with_a_full_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    async with nodes() as (one, _):
        monkeypatch.setattr(syscalls, "sendmmsg", refusing(errno.EAGAIN))
        one.post(1000)
        await until(lambda: one.driver._full is not None)
        one.driver.close()


async def test_drop_unsent__memory_of_a_cancelled_request_is_not_read_after_a_full_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The socket refused its bursts; they must not be sent later, from memory that may be reused."""
    async with nodes() as (one, two):
        monkeypatch.setattr(syscalls, "sendmmsg", refusing(errno.EAGAIN))
        one.post(1 << 20)
        await until(lambda: one.driver._transmitter.port is not None)
        one.core.cancel(one.peer, request=0, now=time.monotonic())
        one.driver.wake()
        await one.until(completed)
        # The ABORT for the other end may be pending already: it refers to no memory.
        waiting, held = one.driver._transmitter, one.driver._deferred
        assert not waiting._lengths[: waiting._packets].any()
        assert not isinstance(held, Burst) or not held.payload_bytes
        one.outgoing.array[:] = 0xEE
        monkeypatch.undo()
        one.post(100_000)
        message = await two.the_message()
        assert two.body(message) == b"\xee" * 100_000
        await one.until(completed, count=2)
        assert statuses(one) == [Status.FLUSHED, Status.OK]


async def test_completion__a_pending_retransmission_is_not_read_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ack of the first transmission arrives while the second is pending: the application owns the memory again."""
    async with nodes() as (one, _):
        real = syscalls.sendmmsg

        def send_and_report_full(fd: int, *, messages: int, count: int) -> int:
            real(fd, messages=messages, count=count)
            raise BlockingIOError(errno.EAGAIN, "EAGAIN")

        waiting: list[int | None] = []
        one.reacts = lambda _: waiting.append(one.driver._transmitter.port)
        monkeypatch.setattr(syscalls, "sendmmsg", send_and_report_full)
        one.post(1000)
        await one.until(completed)
        assert statuses(one) == [Status.OK]
        assert waiting == [None]
        assert not isinstance(one.driver._deferred, Burst)


async def test_dropped_packets__counts_every_socket() -> None:
    async with node(accepting=True) as two:
        for sock in two.sockets[:2]:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            for sock in two.sockets[:2]:
                for _ in range(50):
                    one.sendto(bytes(1000), sock.getsockname())
        assert two.driver.dropped_packets() >= 60
