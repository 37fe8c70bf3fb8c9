"""Receivers that are not ready: no credit to grant, or no memory for what they granted."""

from __future__ import annotations

from typing import Any

import pytest

from netns.netem.shape import Shape
from srd.proto.wire.status import Status
from tests.simulation import completed, content, received, release
from tests.srd.proto.contract import MIB, Pair

SEEDS = [1, 2, 3]
SLOW = Shape(delay_us=500, rate_bps=10_000_000, limit_packets=200)
SMALL: dict[str, Any] = {"receive_window_bytes": MIB, "max_message_bytes": MIB}


# -- receiver not ready ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("retry", [0, 1, 3, 6])
def test_rnr__ends_after_its_budget_and_others_go_on(seed: int, retry: int) -> None:
    pair = Pair(seed=seed, rnr_retry=retry, **SMALL)
    pair.send(1, length=MIB)
    for request in (2, 3, 4):
        pair.send(request, length=MIB)
    pair.write(5, length=MIB)
    started = pair.network.now
    pair.run(1, 2, 3, 4, 5)
    rnr = Status.REMOTE_ERROR_RNR
    assert pair.statuses() == {1: Status.OK, 2: rnr, 3: rnr, 4: rnr, 5: Status.OK}
    assert pair.network.now - started < 0.2 + 0.25 * (retry + 2)
    release(pair.b, received(pair.b)[0], now=pair.network.now)
    pair.send(6, length=MIB)
    assert pair.run(6)[6] is Status.OK, "the receiver is ready again"
    assert pair.is_idle()


def test_rnr__duration_grows_with_the_retries() -> None:
    ended_at = []
    for retry in range(7):
        pair = Pair(rnr_retry=retry, **SMALL)
        pair.send(1, length=MIB)
        pair.send(2, length=1)
        pair.network.run(until=lambda pair=pair: len(completed(pair.a)) == 2, seconds=5)  # type: ignore[misc]  # bound early
        assert pair.statuses()[2] is Status.REMOTE_ERROR_RNR
        ended_at.append(pair.network.now)
    assert ended_at == sorted(ended_at)
    assert ended_at[6] > ended_at[0] + 0.1


def test_rnr__seven_retries_without_limit() -> None:
    pair = Pair(rnr_retry=7, **SMALL)
    pair.send(1, length=MIB)
    pair.send(2, length=1)
    pair.network.run(seconds=200)
    assert pair.statuses() == {1: Status.OK}
    release(pair.b, received(pair.b)[0], now=pair.network.now)
    assert pair.run(2, seconds=1) == {1: Status.OK, 2: Status.OK}


def test_rnr__a_slow_receiver_is_ready() -> None:
    """It releases a little from time to time; each grant resets the count."""
    pair = Pair(rnr_retry=6, **SMALL)
    for request in range(12):
        pair.send(request, length=MIB // 4)
    for taken in range(12):
        pair.network.run(until=lambda taken=taken: len(received(pair.b)) > taken, seconds=5)  # type: ignore[misc]  # bound early
        pair.network.run(seconds=0.2)
        release(pair.b, received(pair.b)[taken], now=pair.network.now)
    assert set(pair.run(*range(12)).values()) == {Status.OK}


# -- an empty pool: more was granted than there is memory -----------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", [None, Shape(delay_us=500, loss_percent=5)], ids=["clean", "lossy"])
def test_dropped__for_a_while_and_everything_arrives(seed: int, shape: Shape | None) -> None:
    pair = Pair(seed=seed, shape=shape)
    pair.b.full = True
    for index in range(8):
        pair.send(index, length=300_000, at=index, immediate=index)
    pair.write(100, length=300_000)
    pair.read(101, length=300_000)
    before = pair.network.wire_packets
    pair.network.run(seconds=2)
    assert pair.statuses().keys() <= {101}, "a response is no message to b"
    assert pair.network.wire_packets - before < 2500, "retries are few"
    pair.b.full = False
    freed_at = pair.network.now
    everything = {*range(8), 100, 101}
    pair.network.run(until=lambda: pair.statuses().keys() == everything, seconds=5)
    assert set(pair.statuses().values()) == {Status.OK}
    assert len(pair.statuses()) == 10
    assert pair.network.now - freed_at < 1.0
    for message in received(pair.b):
        assert message.immediate is not None
        start = message.immediate
        assert content(pair.b, message.extents) == pair.a.region[start : start + 300_000].tobytes()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("retry", [0, 3, 6])
def test_dropped__ends_after_the_budget_and_others_go_on(seed: int, retry: int) -> None:
    pair = Pair(seed=seed, rnr_retry=retry)
    pair.b.full = True
    pair.send(1, length=300_000)
    pair.send(2, length=0)  # needs no memory
    pair.write(3, length=300_000)
    started = pair.network.now
    assert pair.run(1, 2) == {1: Status.REMOTE_ERROR_RNR, 2: Status.OK}
    assert pair.network.now - started < 0.2 + 0.5 * (retry + 2)
    pair.b.full = False
    pair.send(4, length=300_000, immediate=4)
    pair.run(3, 4)
    assert {pair.statuses()[request] for request in (3, 4)} == {Status.OK}
    assert [message.immediate for message in received(pair.b) if message.length] == [4], (
        "a failed request never arrives"
    )
    assert pair.is_idle()


def test_dropped__partly_landed_gives_its_memory_back() -> None:
    """Half of a message has landed when the pool runs empty; its own memory fills the pool."""
    pair = Pair(rnr_retry=2, shape=SLOW)
    pair.send(1, length=4 * MIB)
    receiver = pair.b.core.peer(pair.at_b).receiver
    pair.network.run(until=lambda: receiver.landed_bytes > MIB, seconds=5)
    pair.b.full = True
    assert pair.run(1) == {1: Status.REMOTE_ERROR_RNR}
    pair.network.run(seconds=3)
    assert pair.released_bytes() == receiver.landed_bytes > MIB
    assert pair.is_idle()


# -- a receiver that never reads ------------------------------------------------------------------------------------


def held_back(pair: Pair, *, count: int, window: int, others: int = 0) -> None:
    """Run until only the window's messages have completed; then release each, until all have."""
    pair.network.run(seconds=3)
    assert len(pair.statuses()) == window + others
    receiver = pair.b.core.peer(pair.at_b).receiver
    assert receiver._begun_messages == window
    while len(pair.statuses()) < count:
        before = len(pair.statuses())
        pair.b.core.release(pair.at_b, size_bytes=0, messages=window // 2, now=pair.network.now)
        pair.network.run(until=lambda before=before: len(pair.statuses()) > before, seconds=2)  # type: ignore[misc]  # bound early
        assert len(pair.statuses()) > before
        pair.network.run(seconds=0.3)
    assert set(pair.statuses().values()) == {Status.OK}


@pytest.mark.parametrize("length", [0, 1])
def test_credit__limits_small_messages_like_large_ones(length: int) -> None:
    pair = Pair(receive_window_messages=40)
    for request in range(100):
        pair.send(request, length=length)
    held_back(pair, count=100, window=40)


def test_credit__writes_that_are_not_received() -> None:
    pair = Pair(receive_window_messages=40)
    for request in range(100):
        pair.write(request, length=10, immediate=request)
    pair.write(1000, length=10)
    pair.read(1001, length=10)
    pair.run(1000, 1001)
    assert len(pair.received_writes()) == 40
    held_back(pair, count=102, window=40, others=2)


@pytest.mark.parametrize("kind", ["send", "write"])
def test_credit__of_messages_comes_back_from_what_was_aborted(kind: str) -> None:
    pair = Pair(receive_window_messages=2, shape=SLOW)
    for request in range(12):
        getattr(pair, kind)(request, length=MIB, immediate=1)
        pair.network.run(seconds=0.01 * request)
        pair.cancel(request)
    pair.network.run(seconds=3)
    assert set(pair.statuses().values()) == {Status.FLUSHED}
    sender = pair.a.core.peer(pair.at_a).sender
    started = sender.queue.credit._started_messages
    assert pair.b.core.peer(pair.at_b).receiver.acks.credit_messages - started == 2
    assert started >= 10
    assert pair.is_idle()
