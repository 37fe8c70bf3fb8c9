"""srd.io.allowance: the buckets in virtual time, and drivers and endpoints that have an allowance."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import UsageError
from srd.io import throttle
from srd.io.allowance import (
    MARK_AFTER_S,
    MIN_BANDWIDTH_BPS,
    MIN_PACKETS_PER_SECOND,
    RESUME_S,
    Allowance,
    AllowanceExceeded,
    DirectionLimit,
)
from srd.io.rx_memory import RxBatch
from srd.io.throttle import AllowanceThrottle
from srd.io.timer import TimerFd
from srd.proto.wire.data import Burst, GroDatagram
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S, until
from tests.srd.io.exchange import wait_readable
from tests.srd.io.node import completed, fill, node, nodes
from tests.srd.io.trace import traced
from tests.srd.loopback import PLAIN, SMALL, carry, content, pair, receive, send

SEED = 19
MBPS = 1_000_000
SLOW = Allowance(bandwidth_bps=200 * MBPS)
SLOW_BYTES_PER_S = 25_000_000
AT_ONCE_BYTES = 128 << 10
"""What goes beyond the bucket at most: a segment train of 64 KiB and its headers; twice that, to be safe."""


DEBT_S = 0.3


def exhaust(limit: DirectionLimit) -> None:
    """Charge an allowance of these tests, of bytes or of packets, so that nothing goes for `DEBT_S`."""
    charged_s = SLOW.burst_s + DEBT_S
    limit.charge(int(SLOW_BYTES_PER_S * charged_s), packets=int(10_000 * charged_s), now=time.monotonic())


def throttle_of(endpoint: Endpoint) -> AllowanceThrottle:
    limits = endpoint._engine.driver._throttle
    assert isinstance(limits, AllowanceThrottle)
    return limits


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[DirectionLimit]:
    """Those of the drivers that the test makes, each with what it may read and what it may send."""
    made: list[DirectionLimit] = []

    def make(allowance: Allowance) -> DirectionLimit:
        made.append(DirectionLimit(allowance))
        return made[-1]

    monkeypatch.setattr(throttle, "DirectionLimit", make)
    return made


# -- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"bandwidth_bps": MIN_BANDWIDTH_BPS - 1}, f"bandwidth_bps: {MIN_BANDWIDTH_BPS - 1} is less than"),
        ({"packets_per_second": MIN_PACKETS_PER_SECOND - 1}, "packets_per_second: 9999 is less than 10000"),
        ({"burst_s": 0.0}, "burst_s: 0.0 is not between"),
        ({"burst_s": 1.5}, "burst_s: 1.5 is not between"),
    ],
)
def test_allowance__refuses_what_makes_no_sense(settings: dict[str, float], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Allowance(**settings)  # type: ignore[arg-type]  # that is the test


# -- buckets, in virtual time ---------------------------------------------------------------------------------------


def test_limit__goes_on_only_when_the_debt_is_paid_and_the_bucket_filled_for_a_while() -> None:
    limit = DirectionLimit(Allowance(bandwidth_bps=800 * MBPS, burst_s=0.01))  # 100 bytes in a microsecond
    assert limit.room(5.0, item_bytes=1000) in (999, 1000)
    limit.charge(999_000, packets=999, now=5.0)
    assert limit.room(5.0, item_bytes=9000) == 1, "a packet may go beyond the bucket"
    limit.charge(9000, packets=1, now=5.0)
    assert limit.ready_at == pytest.approx(5.0 + 8000 / 1e8 + RESUME_S)
    assert limit.room(limit.ready_at - 1e-6, item_bytes=1) == 0
    assert limit.room(limit.ready_at, item_bytes=1000) in (99, 100)


def test_limit__counts_by_the_bucket_that_was_in_debt() -> None:
    limit = DirectionLimit(Allowance(bandwidth_bps=800 * MBPS, packets_per_second=10_000, burst_s=0.01))
    limit.charge(100, packets=150, now=5.0)
    limit.count_waited(3)
    assert (limit.bandwidth_exceeded, limit.packets_exceeded) == (0, 3)
    limit.charge(3_000_000, packets=1, now=6.0)
    limit.count_waited(4)
    assert (limit.bandwidth_exceeded, limit.packets_exceeded) == (4, 3)
    limit.charge(3_000_000, packets=200, now=7.0)
    limit.count_waited(5)
    assert (limit.bandwidth_exceeded, limit.packets_exceeded) == (9, 8)


@given(
    bps=st.integers(MIN_BANDWIDTH_BPS, 100_000 * MBPS),
    pps=st.integers(MIN_PACKETS_PER_SECOND, 10_000_000),
    burst_s=st.floats(0.0001, 1.0),
    steps=st.lists(st.tuples(st.floats(0.0, 0.05), st.integers(28, 9000)), min_size=1, max_size=300),
)
def test_limit__no_interval_carries_more_than_rate_burst_and_a_packet(
    bps: int, pps: int, burst_s: float, steps: list[tuple[float, int]]
) -> None:
    """Whoever sends whenever there is room, as many packets as there is room for."""
    limit = DirectionLimit(Allowance(bandwidth_bps=bps, packets_per_second=pps, burst_s=burst_s))
    now, sent = 50.0, [(50.0, 0, 0)]
    for pause_s, size_bytes in steps:
        now += pause_s
        count = min(limit.room(now, item_bytes=size_bytes), 256)
        if count:
            limit.charge(count * size_bytes, packets=count, now=now)
        else:
            assert now < limit.ready_at
        sent.append((now, count * size_bytes, count))
    for first in range(0, len(sent), 10):
        total_bytes = total_packets = 0
        for at, size_bytes, packets in sent[first:]:
            total_bytes, total_packets = total_bytes + size_bytes, total_packets + packets
            elapsed_s = at - sent[first][0]
            assert total_bytes <= bps / 8 * (elapsed_s + burst_s) + 9000 + 1
            assert total_packets <= pps * (elapsed_s + burst_s) + 1 + 0.01


# -- sending --------------------------------------------------------------------------------------------------------


LIMITED = replace(PLAIN, allowance=SLOW)


@pytest.mark.parametrize(
    ("opener", "acceptor"),
    [(LIMITED, PLAIN), (PLAIN, LIMITED), (replace(SMALL, allowance=SLOW, busy_poll=True), SMALL)],
    ids=["the sender's", "the receiver's", "of an encrypted peer that polls"],
)
async def test_bytes__are_within_the_allowance_and_all_arrive(opener: EndpointConfig, acceptor: EndpointConfig) -> None:
    payload = content(2 << 20, seed=SEED)
    async with pair(config=acceptor, opener=opener) as (one, two, here, there):
        started_at = time.monotonic()
        is_sender = opener.allowance is not None
        exhaust(throttle_of(one).outgoing if is_sender else throttle_of(two).incoming)
        for _ in range(3):
            await carry(here, there, payload)
        elapsed_s = time.monotonic() - started_at
        assert 3 * len(payload) <= SLOW_BYTES_PER_S * (elapsed_s - DEBT_S + SLOW.burst_s) + AT_ONCE_BYTES
        limited, other = (one, two) if is_sender else (two, one)
        waited = limited._engine.driver.allowance_exceeded
        assert (waited.bandwidth_out > 0, waited.bandwidth_in > 0) == (is_sender, not is_sender)
        assert waited.packets_per_second == 0
        assert other._engine.driver.allowance_exceeded == AllowanceExceeded()


@pytest.mark.sources
async def test_outgoing__acks_are_not_held_back_while_data_is(limits: list[DirectionLimit]) -> None:
    """The allowance is exhausted for as long as the test lasts: data waits, and what is received is acknowledged."""
    async with nodes(allowances=(None, SLOW)) as (one, two):
        _, limit = limits
        limit.ready_at = time.monotonic() + 10 * PATIENCE_S
        two.post(100_000)
        one.post(100_000)
        await one.until(completed)  # so its packets were acknowledged
        assert two.core.holds_data
        assert two.core.peer(two.peer).sender.packets == 0
        limit.ready_at = 0.0
        two.driver.wake()
        assert (await one.the_message()).length == 100_000


@pytest.mark.sources
async def test_outgoing__waits_without_turns(limits: list[DirectionLimit], monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for the allowance wakes the loop when there is enough again, and not before."""
    async with nodes(allowances=(SLOW, None)) as (one, _):
        limits[1].ready_at = held_until = time.monotonic() + 0.05
        polls: list[float] = []
        poll_transmit = one.core.poll_transmit

        def polling(now: float, **named: Any) -> Any:
            polls.append(now)
            return poll_transmit(now, **named)

        monkeypatch.setattr(one.core, "poll_transmit", polling)
        one.post(50_000)
        await one.until(completed)
        early = [at for at in polls if at < held_until]
        assert len(early) < 20, "the loop span"


# -- receiving ------------------------------------------------------------------------------------------------------


@pytest.mark.sources
async def test_incoming__nothing_is_read_while_it_is_exhausted(
    limits: list[DirectionLimit], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor polled: the timer ends the wait."""
    async with traced(monkeypatch, allowance=SLOW) as (one, two, trace):
        payload = fill(one, 100_000)
        limit = limits[0]
        limit.ready_at = time.monotonic() + 10 * PATIENCE_S
        armed: list[float | None] = []
        arm = TimerFd.arm

        def arming(timer: TimerFd, at: float | None) -> None:
            armed.append(at)
            arm(timer, at)

        monkeypatch.setattr(TimerFd, "arm", arming)
        two.driver.flush()
        assert armed == [limit.ready_at]
        trace.steps.clear()
        one.post(100_000)
        one.driver.flush()
        wait_readable(two.sockets[0])
        for _ in range(10):
            await asyncio.sleep(0)
        assert not trace.steps
        limit.ready_at = 0.0
        two.driver.wake()
        message = await two.the_message()
        assert two.body(message) == payload
        assert limit.bandwidth_exceeded == 0, "neither bucket was in debt"


def test_incoming__counts_what_waited_and_marks_what_waited_for_long() -> None:
    limits = AllowanceThrottle(SLOW, overhead_bytes=64, datagram_bytes=8972)
    limit = limits.incoming
    exhaust(limit)
    now, source = limit.ready_at, ("127.0.0.1", 9)
    batch = RxBatch()
    batch.datagrams = [
        GroDatagram(memoryview(b""), count, 0, count * 1000, 1000, source, now + after_s)
        for count, after_s in ((5, -2 * MARK_AFTER_S), (2, -MARK_AFTER_S / 2), (1, 0.001))
    ]
    batch.controls = [(b"ack", source, now - 0.001), (b"ack", source, now + 0.001)]
    limits.charge_batch(batch, now=now + 0.002)
    assert [datagram.ecn_ce for datagram in batch.datagrams] == [True, False, False]
    assert (limit.bandwidth_exceeded, limit.packets_exceeded) == (5 + 2 + 1, 0)


@pytest.mark.sources
async def test_incoming__a_flooded_socket_does_not_keep_the_others_from_being_read(
    limits: list[DirectionLimit], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets that a turn left unread come first in the next one."""
    async with node(accepting=True, allowance=SLOW) as two:
        order: list[socket.socket] = []

        def receiving(sock: socket.socket) -> None:
            """Leave in the socket what is there."""
            order.append(sock)
            limits[0].ready_at = time.monotonic() + 0.001  # one read exhausts it

        monkeypatch.setattr(two.queue, "receive", receiving)
        for sock in two.sockets:
            sock.sendto(b"x", sock.getsockname())
        await until(lambda: len(order) >= 4)
        assert len(set(order)) > 1, "always the same one"


# -- others ---------------------------------------------------------------------------------------------------------


async def test_neighbour__in_the_same_loop_is_not_slowed_down() -> None:
    """The neighbour carries its messages while the other one may send nothing at all."""
    payload = content(1 << 20, seed=SEED)
    limited = replace(PLAIN, allowance=Allowance(bandwidth_bps=MIN_BANDWIDTH_BPS))
    async with (
        pair(config=PLAIN, opener=limited) as (one, _, slow, slow_there),
        pair(config=PLAIN) as (_, _, fast, fast_there),
    ):
        limit = throttle_of(one).outgoing
        limit.ready_at = time.monotonic() + 10 * PATIENCE_S
        slow_sending = asyncio.ensure_future(send(slow, payload))
        for _ in range(5):
            await carry(fast, fast_there, payload)
        assert not slow_sending.done()
        limit.ready_at = 0.0
        one._engine.driver.wake()
        assert await receive(slow_there) == payload
        assert await slow_sending is Status.OK


# -- the core -------------------------------------------------------------------------------------------------------


@pytest.mark.sources
async def test_core__bursts_have_as_many_packets_as_are_allowed() -> None:
    async with nodes() as (one, _):
        one.driver.wake = lambda: None  # type: ignore[method-assign]
        one.post(1 << 20)
        one.core.peer(one.peer).sender.controller.window_bytes = float(1 << 20)
        now = time.monotonic()
        while (out := one.core.poll_transmit(now, most_packets=0)) is not None:
            assert not isinstance(out, Burst)
        assert one.core.holds_data
        burst = one.core.poll_transmit(now, most_packets=3)
        assert isinstance(burst, Burst)
        assert burst.count == 3
        assert not one.core.holds_data
