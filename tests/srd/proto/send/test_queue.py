"""Requests that end early (cancelled, timed out, refused for lack of memory), and that the others complete."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from netns.netem.shape import Shape
from srd.proto.outgoing.inflight import LostRange
from srd.proto.wire.control import Nack
from srd.proto.wire.data import Burst
from srd.proto.wire.status import Status
from srd.proto.work_request import BatchRequest
from tests.simulation import completed, content, received, release
from tests.srd.proto.byhand import give
from tests.srd.proto.congestion.fixed import Fixed
from tests.srd.proto.contract import MIB, Pair

SEEDS = [1, 2, 3]
SLOW = Shape(delay_us=500, rate_bps=10_000_000, limit_packets=200)
SMALL: dict[str, Any] = {"receive_window_bytes": MIB, "max_message_bytes": MIB}


def credit_of(pair: Pair) -> int:
    """Bytes that the receiver has granted beyond the first window: of sends that it released or discarded."""
    receiver = pair.b.core.peer(pair.at_b).receiver
    return receiver.acks.credit_bytes - pair.network.config.receive_window_bytes


# -- cancel ---------------------------------------------------------------------------------------------------------


def test_cancel__before_anything_was_sent() -> None:
    pair = Pair(**SMALL)
    pair.send(1, length=MIB)
    pair.send(2, length=MIB)  # waits for the first to be released
    pair.network.run(until=lambda: bool(completed(pair.a)), seconds=5)
    pair.cancel(2)
    assert pair.statuses() == {1: Status.OK}
    assert pair.run(2) == {1: Status.OK, 2: Status.FLUSHED}
    release(pair.b, received(pair.b)[0], now=pair.network.now)
    pair.send(3, length=MIB)
    pair.run(3)
    assert [m.length for m in received(pair.b)] == [MIB, MIB]
    assert pair.is_idle()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["send", "write", "read"])
@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.05, 0.2])
def test_cancel__at_any_time_is_never_half_delivered(seed: int, kind: str, after_s: float) -> None:
    """4 MiB take 0.84 s. The memory of what landed is freed, and later requests complete."""
    pair = Pair(seed=seed, shape=SLOW)
    getattr(pair, kind)(1, length=4 * MIB)
    pair.network.run(seconds=after_s)
    pair.cancel(1)
    pair.cancel(1)
    pair.network.run(until=lambda: bool(completed(pair.a)), seconds=0.001)
    assert pair.statuses() == {1: Status.FLUSHED}, "at once"
    pair.send(2, length=200_000, at=5, immediate=9)
    pair.run(2)
    (message,) = received(pair.b)
    assert content(pair.b, message.extents) == pair.a.region[5:200_005].tobytes()
    assert pair.received_writes() == []
    pair.network.run(seconds=1)
    assert pair.is_idle()
    if kind == "send":
        landed = pair.b.core.peer(pair.at_b).receiver.landed_bytes - 200_000
        assert pair.released_bytes() <= landed
        assert pair.released_bytes() > 0 or after_s < 0.01
        assert credit_of(pair) in (0, 4 * MIB), "0 if nothing was sent"
        assert (credit_of(pair) == 0) == (after_s == 0)


def test_cancel__of_a_packetized_message_may_still_arrive() -> None:
    pair = Pair()
    pair.send(1, length=1000)
    while not isinstance(out := pair.a.core.poll_transmit(pair.network.now), Burst):
        assert out is not None
    pair.network.transmit(pair.a, out)
    pair.cancel(1)
    assert pair.run(1) == {1: Status.FLUSHED}
    assert len(received(pair.b)) == 1
    assert pair.is_idle()


def test_cancel__of_an_ended_or_unknown_request() -> None:
    pair = Pair()
    pair.send(1, length=10)
    pair.run(1)
    pair.cancel(1)
    pair.cancel(99)
    pair.a.core.cancel(77, request=1, now=pair.network.now)
    pair.network.run(seconds=0.1)
    assert pair.statuses() == {1: Status.OK}


def test_cancel__half_packetized_messages_with_a_full_window() -> None:
    """The ABORT must fit into the receiver's window, though it is full."""
    pair = Pair(window_packets=64, shape=SLOW, controller=Fixed, initial_window_packets=128)
    for index in range(4):
        pair.send(index, length=4 * MIB)
        pair.write(10 + index, length=4 * MIB)
    sender = pair.a.core.peer(pair.at_a).sender
    pair.network.run(until=lambda: sender._window_room_packets() <= 0, seconds=5)
    assert sender._window_room_packets() <= 0
    for index in range(4):
        pair.cancel(index)
        pair.cancel(10 + index)
    assert sender._inflight.next_psn - sender._inflight.base <= 64
    pair.run(*range(4), *range(10, 14))
    pair.send(99, length=1000)
    assert pair.run(99)[99] is Status.OK
    assert pair.is_idle()


# -- time -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retry", [6, 7])
def test_timeout__a_receiver_that_is_never_ready(retry: int) -> None:
    """Whatever `rnr_retry` is, the request ends, and its status gives the cause."""
    pair = Pair(rnr_retry=retry, request_timeout_s=2.0, rnr_timer_s=0.25, **SMALL)
    pair.send(1, length=MIB)
    pair.send(2, length=MIB)
    started = pair.network.now
    pair.network.run(until=lambda: len(completed(pair.a)) == 2, seconds=10)
    assert pair.statuses() == {1: Status.OK, 2: Status.REMOTE_ERROR_RNR}
    assert pair.network.now - started <= 2.01


@pytest.mark.parametrize("kind", ["send", "write", "read"])
def test_timeout__a_network_too_slow(kind: str) -> None:
    """4 MiB in half a second need twice the rate: the request times out, and the next one arrives."""
    pair = Pair(shape=SLOW, request_timeout_s=0.5)
    getattr(pair, kind)(1, length=4 * MIB)
    started = pair.network.now
    pair.network.run(until=lambda: bool(completed(pair.a)), seconds=10)
    assert pair.network.now - started == pytest.approx(0.5, abs=0.01)
    assert pair.statuses() == {1: Status.LOCAL_ERROR_UNRESP_REMOTE}
    pair.network.run(seconds=0.5)
    pair.send(2, length=1000)
    assert pair.run(2)[2] is Status.OK
    pair.network.run(seconds=1)
    assert pair.is_idle()


def test_timeout__none() -> None:
    pair = Pair(request_timeout_s=math.inf, **SMALL)
    pair.send(1, length=MIB)
    pair.send(2, length=MIB)
    pair.network.run(seconds=1000)
    assert pair.statuses() == {1: Status.OK}


@pytest.mark.sources
def test_timeout__of_a_read_that_is_never_answered() -> None:
    """Its responder acknowledges and sends no response."""
    pair = Pair(request_timeout_s=1.5)
    pair.b.core.peer(pair.at_b).responder._queue.respond = lambda *_, **__: None  # type: ignore[method-assign]  # a responder that does not keep the rules
    pair.read(1, length=1000)
    started = pair.network.now
    pair.network.run(until=lambda: bool(completed(pair.a)), seconds=10)
    assert pair.statuses() == {1: Status.LOCAL_ERROR_UNRESP_REMOTE}
    assert pair.network.now - started == pytest.approx(1.5, abs=0.01)


# -- refused by the responder -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (7, Status.REMOTE_ERROR_BAD_ADDRESS),
        (8, Status.REMOTE_ERROR_ABORT),
        (9, Status.REMOTE_ERROR_BAD_DEST_QPN),
        (10, Status.REMOTE_ERROR_RNR),
        (11, Status.REMOTE_ERROR_BAD_LENGTH),
        (0, Status.REMOTE_ERROR_BAD_STATUS),
        (13, Status.REMOTE_ERROR_BAD_STATUS),
        (255, Status.REMOTE_ERROR_BAD_STATUS),
    ],
)
def test_refused__with_the_status_that_the_responder_gives(number: int, status: Status) -> None:
    pair = Pair(shape=SLOW)
    pair.write(1, length=4 * MIB)
    pair.write(2, length=1000)
    pair.network.run(seconds=0.05)
    give(pair.a, Nack(pair.a.core.peer(pair.at_a).own_context, 0, number), now=pair.network.now, source="b:0")
    assert pair.run(1, 2) == {1: status, 2: Status.OK}
    pair.network.run(seconds=1)
    assert pair.is_idle()


@pytest.mark.parametrize("message", [1, 2, 77, 2**32 - 1])
def test_refused__a_nack_of_an_unsent_message_is_ignored(message: int) -> None:
    """One waits, one has ended, the others do not exist."""
    pair = Pair(**SMALL)
    pair.write(1, length=10)  # 0
    pair.send(2, length=MIB)  # 1
    pair.run(1, 2)
    pair.send(3, length=MIB)  # 2: waits for credit
    pair.network.run(seconds=0.1)
    give(pair.a, Nack(pair.a.core.peer(pair.at_a).own_context, message, 7), now=pair.network.now, source="b:0")
    pair.network.run(seconds=0.1)
    assert pair.statuses() == {1: Status.OK, 2: Status.OK}
    release(pair.b, received(pair.b)[0], now=pair.network.now)
    assert pair.run(3)[3] is Status.OK


def test_refused__a_lost_range_of_a_batch_does_not_lengthen_the_next_burst() -> None:
    """A burst of small messages may have more packets than one of full ones; that holds for the batch alone."""
    pair = Pair(controller=Fixed, initial_window_packets=16)
    sender = pair.a.core.peer(pair.at_a).sender
    places = np.zeros(40, np.uint64)
    pair.a.core.post_batch(pair.at_a, BatchRequest(first_request=0, payload_addresses=places, length=64))
    pair.network.run(until=lambda: sender._inflight.next_psn == 40, seconds=1)
    (small,) = {id(psns): psns for psns in sender._inflight._ranges.values()}.values()
    pair.network.run(seconds=0.1)
    pair.write(100, length=MIB)
    sender._lost.append(LostRange(small, small.first, small.count, None))  # acknowledged since
    burst = sender.poll_burst(now=pair.network.now)
    assert burst is not None
    assert (burst.message, burst.count) == (40, 1)
