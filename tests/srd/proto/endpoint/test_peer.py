"""A peer's states, credit, and every way to end."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from netns.netem.shape import Shape
from srd.proto.config import ProtocolConfig
from srd.proto.endpoint.peer import (
    CLOSE_ATTEMPTS,
)
from srd.proto.events import Completion, PeerEnded
from srd.proto.wire.control import Close, Datagram, decode_untrusted
from srd.proto.wire.data import Burst
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Network, Node, completed, connected, content, ended, received, release

SEEDS = [1, 2, 3]
SMALL_WINDOW = replace(ProtocolConfig(), receive_window_bytes=1 << 20, max_message_bytes=1 << 20)


# -- credit ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loss_percent", [0, 20])
def test_credit__exhausted_and_granted_again(seed: int, loss_percent: int) -> None:
    """A receiver that keeps its messages stops the sender, for any time, without loss."""
    network, at_a, at_b = connected(
        seed=seed, config=SMALL_WINDOW, shape=Shape(delay_us=500, loss_percent=loss_percent)
    )
    size = 300_000
    for request in range(9):
        network.a.core.post(at_a, WorkRequest(request=request, payload_offset=request * size, length=size))
    network.run(seconds=3)
    assert len(received(network.b)) == 3, "as many as fit into 1 MiB"
    assert not ended(network.a)
    assert network.b.core.peer(at_b).receiver.acks.credit_bytes == 1 << 20
    done = 0
    while done < 9:
        fresh = received(network.b)[done:]
        assert fresh, f"stuck after {done} messages"
        for message in fresh:
            start = message.message * size
            assert content(network.b, message.extents) == network.a.region[start : start + size].tobytes()
            release(network.b, message, now=network.now)
        done += len(fresh)
        network.run(until=lambda: len(received(network.b)) > done or done == 9, seconds=5)  # noqa: B023 - called within the round
    network.run(until=lambda: len(completed(network.a)) == 9, seconds=5)
    assert {c.status for c in completed(network.a)} == {Status.OK}


def test_credit__a_lost_grant_is_requested() -> None:
    network, at_a, _ = connected(config=SMALL_WINDOW)
    for request in range(2):
        network.a.core.post(at_a, WorkRequest(request=request, payload_offset=0, length=1 << 20))
    network.run(until=lambda: bool(completed(network.a)), seconds=2)
    network.run(seconds=0.02)
    release(network.b, received(network.b)[0], now=network.now)
    network.dead = set(range(4))
    network.run(seconds=0.02)  # the grant is lost
    network.dead = set()
    repaired_at = network.now
    network.run(until=lambda: len(completed(network.a)) == 2, seconds=5)
    assert len(completed(network.a)) == 2
    assert network.now - repaired_at < 0.5, "sooner than the next keepalive probe"


# -- closing --------------------------------------------------------------------------------------------------------


def test_close__before_it_is_open() -> None:
    network = Network(seed=1)
    number = network.a.core.connect("b:0", sizes=(8972,), now=network.now)
    network.a.core.close(number, now=network.now)
    network.run(seconds=0.1)
    assert ended(network.a) == [PeerEnded(number, Status.FLUSHED, "closed before it was open", ())]
    assert network.wire_packets == 0


def test_close__is_idempotent() -> None:
    network, at_a, _ = connected()
    network.a.core.close(at_a, now=network.now)
    network.a.core.close(at_a, now=network.now)
    network.run(seconds=3)
    assert [end.status for end in ended(network.a)] == [Status.OK]


@pytest.mark.parametrize("seed", SEEDS)
def test_close__of_both_ends_at_once(seed: int) -> None:
    network, at_a, at_b = connected(seed=seed, shape=Shape(delay_us=500, loss_percent=10))
    network.a.core.close(at_a, now=network.now)
    network.b.core.close(at_b, now=network.now)
    network.run(seconds=5)
    assert [end.status for end in ended(network.a) + ended(network.b)] == [Status.OK, Status.OK]


@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
@pytest.mark.parametrize("delay_us", [500, 50_000])
def test_close__unconfirmed(delay_us: int, *, used: bool) -> None:
    """Every request was acknowledged, so it succeeds, after some CLOSEs with exponential backoff."""
    network, at_a, _ = connected(shape=Shape(delay_us=delay_us))
    if used:
        network.a.core.post(at_a, WorkRequest(request=1, payload_offset=0, length=1 << 20))
    network.run(seconds=1)
    network.b.alive = False
    closes = list[float]()

    def spy(_: Node, out: Burst | Datagram) -> None:
        if isinstance(out, Datagram) and isinstance(decode_untrusted(out.data), Close):
            closes.append(network.now)

    network.on_sent = spy
    network.a.core.close(at_a, now=network.now)
    assert network.end_of(network.a, seconds=10).status is Status.OK
    assert 3 <= len(closes) <= CLOSE_ATTEMPTS
    gaps = [later - earlier for earlier, later in pairwise(closes)]
    assert [later / earlier for earlier, later in pairwise(gaps)] == pytest.approx([2.0] * (len(gaps) - 1))


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("length", [64, 64 << 10])
def test_close__does_not_overtake_the_ack_of_what_has_arrived(length: int, seed: int) -> None:
    """The other end's message is whole here: that this end closes at once is no failure of it."""
    network = Network(seed=seed)
    for (_, link), each in network.links.items():  # a link is as slow as its number says
        each.shape = Shape(delay_us=200 * (link + 1))
    at_a, at_b = network.connect()
    for request in range(3):
        network.a.core.post(at_a, WorkRequest(request=request, payload_offset=0, length=length))
        network.run(until=lambda: len(received(network.b)) == request + 1, seconds=1)  # noqa: B023
    network.b.core.close(at_b, now=network.now)
    network.run(until=lambda: bool(ended(network.a)) and bool(ended(network.b)), seconds=3)
    assert [c.status for c in completed(network.a)] == [Status.OK] * 3


def test_end__closed_by_the_responder_while_requests_are_open() -> None:
    network, at_a, at_b = connected()
    network.a.core.post(at_a, WorkRequest(request=7, payload_offset=0, length=12 << 20))
    network.run(seconds=0.003)
    network.b.core.close(at_b, now=network.now)
    network.run(until=lambda: bool(ended(network.a)) and bool(ended(network.b)), seconds=3)
    assert completed(network.a) == [Completion(at_a, 7, Status.REMOTE_ERROR_ABORT)]
    assert [end.status for end in ended(network.a) + ended(network.b)] == [Status.OK, Status.OK]
    (end,) = ended(network.b)
    kept = sum(extent.length for extent in end.released)
    assert 0 < kept < 12 << 20, "the pieces of the incomplete message"


def test_end__released_pieces_of_a_dead_sender_tile_what_landed() -> None:
    network, at_a, at_b = connected(shape=Shape(delay_us=500, loss_percent=10))
    network.a.core.post(at_a, WorkRequest(request=7, payload_offset=0, length=12 << 20))
    network.run(seconds=0.01)
    network.a.alive = False
    receiver = network.b.core.peer(at_b).receiver
    end = network.end_of(network.b)
    spans = sorted((extent.offset, extent.offset + extent.length) for extent in end.released)
    assert sum(stop - start for start, stop in spans) == receiver.landed_bytes > 0
    for (_, stop), (start, _) in pairwise(spans):
        assert stop <= start
    for extent in end.released:
        sent = network.a.region[extent.offset : extent.offset + extent.length].tobytes()
        assert content(network.b, (extent,)) == sent
