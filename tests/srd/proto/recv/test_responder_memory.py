"""Writes and reads over registered memory: what arrives, where it lands, and what is refused."""

from __future__ import annotations

import pytest

from netns.netem.shape import Shape
from srd.proto.config import ProtocolConfig
from srd.proto.send.uncredited import MAX_READS
from srd.proto.wire.data import HEADER_BYTES
from srd.proto.wire.status import Status
from tests.simulation import completed, received
from tests.srd.proto.contract import KEY_A, KEY_B, MIB, SIZE, START_B, Pair

SEEDS = [1, 2, 3]
SEGMENT = 8972 - HEADER_BYTES
LENGTHS = [0, 1, SEGMENT, SEGMENT + 1, 64 * SEGMENT + 1, 3 * MIB]
BAD = Status.REMOTE_ERROR_BAD_ADDRESS
# -- write ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("immediate", [None, 0, 0xFFFFFFFF])
def test_write__lands_at_its_target(length: int, immediate: int | None) -> None:
    pair = Pair()
    pair.write(1, length=length, at=77, offset=4321, immediate=immediate)
    assert pair.run(1) == {1: Status.OK}
    assert pair.written(4321, length) == pair.a.region[77 : 77 + length].tobytes()
    assert pair.untouched(pair.b, (4321, length))
    assert pair.received_writes() == ([] if immediate is None else [(length, immediate)])
    assert not received(pair.b), "no receive memory is used"
    assert pair.b.core.peer(pair.at_b).receiver.acks.credit_bytes == ProtocolConfig().receive_window_bytes
    assert pair.is_idle()


@pytest.mark.parametrize("seed", SEEDS)
def test_write__an_event_comes_only_after_every_placement(seed: int) -> None:
    """When the responder is notified, the bytes are in memory."""
    pair = Pair(seed=seed, shape=Shape(delay_us=500, loss_percent=10))
    pair.write(1, length=MIB, immediate=5)
    pair.network.run(until=lambda: bool(pair.received_writes()), seconds=10)
    assert pair.written(0, MIB) == pair.a.region[:MIB].tobytes()


def test_write__needs_no_credit() -> None:
    pair = Pair(receive_window_bytes=1 << 16, max_message_bytes=1 << 16)
    for request in range(4):
        pair.send(request, length=1 << 16)
    pair.write(10, length=4 * MIB)
    assert pair.run(0, 10) == {0: Status.OK, 10: Status.OK}, "sends without credit do not block writes"


# -- read -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_read__fetches_the_bytes(length: int) -> None:
    pair = Pair()
    pair.read(1, length=length, offset=1234, to=99)
    assert pair.run(1) == {1: Status.OK}
    source = START_B + 1234
    assert pair.fetched(99, length) == pair.b.region[source : source + length].tobytes()
    assert pair.untouched(pair.a, (99, length))
    assert pair.untouched(pair.b)
    assert not received(pair.a) + received(pair.b)
    assert pair.is_idle()


def test_read__more_than_may_be_unanswered() -> None:
    pair = Pair(shape=Shape(delay_us=500, loss_percent=2))
    count = 3 * MAX_READS
    most = 0
    for index in range(count):
        pair.read(index, length=1000, offset=index, to=index * 1000)
    responder = pair.b.core.peer(pair.at_b).sender
    assert responder is not None

    def watch() -> bool:
        nonlocal most
        most = max(most, responder.queue.responses)
        return len(completed(pair.a)) == count

    pair.network.run(until=watch, seconds=20)
    assert set(pair.statuses().values()) == {Status.OK}
    assert 0 < most <= 2 * MAX_READS
    for index in range(count):
        source = START_B + index
        assert pair.fetched(index * 1000, 1000) == pair.b.region[source : source + 1000].tobytes()


# -- refused --------------------------------------------------------------------------------------------------------

REFUSED = [
    ("lrw", 0, KEY_B + 1, 10),
    ("lrw", SIZE - 10, KEY_B, 11),
    ("lrw", 2**64 - MIB, KEY_B, MIB),
    ("lrw", 0, KEY_B, SIZE + 1),
]


@pytest.mark.parametrize(("rights", "offset", "key", "length"), [*REFUSED, ("lr", 0, KEY_B, 10), ("", 0, KEY_B, MIB)])
def test_write__refused_and_others_complete(rights: str, offset: int, key: int, length: int) -> None:
    pair = Pair()
    pair.b.keys.ranges[KEY_B] = (START_B, SIZE, rights)
    pair.b.keys.ranges[5] = (START_B, SIZE, "w")
    pair.send(1, length=100_000)
    pair.write(2, length=length, offset=offset, key=key, immediate=1)
    pair.run(2)  # what of it lay within the bounds was placed
    pair.write(3, length=100_000, offset=200_000, key=5)
    pair.send(4, length=100_000)
    assert pair.run(1, 2, 3, 4) == {1: Status.OK, 2: BAD, 3: Status.OK, 4: Status.OK}
    assert pair.received_writes() == []
    assert not pair.b.target[: START_B + 0].any()
    assert not pair.b.target[START_B + SIZE :].any(), "nothing beyond the end"
    assert pair.written(200_000, 100_000) == pair.a.region[:100_000].tobytes()
    if length < SIZE:
        assert pair.untouched(pair.b, (200_000, 100_000))
    assert pair.is_idle()


@pytest.mark.parametrize(("rights", "offset", "key", "length"), [*REFUSED, ("lw", 0, KEY_B, 10), ("", 0, KEY_B, MIB)])
def test_read__refused_and_others_complete(rights: str, offset: int, key: int, length: int) -> None:
    pair = Pair()
    pair.a.keys.ranges[KEY_A] = (0, 16 << 20, "l")
    pair.b.keys.ranges[KEY_B] = (START_B, SIZE, rights)
    pair.send(1, length=100_000)
    pair.read(2, length=length, offset=offset, key=key)
    pair.send(3, length=100_000)
    assert pair.run(1, 2, 3) == {1: Status.OK, 2: BAD, 3: Status.OK}
    assert not pair.a.target.any()
    assert pair.is_idle()


def test_on_deregistered__during_a_write() -> None:
    pair = Pair(shape=Shape(delay_us=500, rate_bps=100_000_000))
    pair.write(1, length=4 * MIB)
    pair.send(2, length=100_000)
    receiver = pair.b.core.peer(pair.at_b).receiver
    pair.network.run(until=lambda: receiver.landed_bytes > MIB, seconds=5)
    del pair.b.keys.ranges[KEY_B]
    pair.b.core.on_deregistered(KEY_B.__eq__, now=pair.network.now)
    landed = pair.b.target.copy()
    assert pair.run(1, 2) == {1: BAD, 2: Status.OK}
    assert (pair.b.target == landed).all(), "no byte lands after the deregistration"
    assert pair.is_idle()


def test_on_deregistered__during_a_read_at_the_responder() -> None:
    pair = Pair(shape=Shape(delay_us=500, rate_bps=100_000_000))
    pair.read(1, length=4 * MIB)
    pair.read(2, length=4 * MIB)
    receiver = pair.a.core.peer(pair.at_a).receiver
    pair.network.run(until=lambda: receiver.landed_bytes > MIB, seconds=5)
    del pair.b.keys.ranges[KEY_B]
    pair.b.core.on_deregistered(KEY_B.__eq__, now=pair.network.now)
    assert pair.run(1, 2) == {1: BAD, 2: BAD}
    pair.send(3, length=100)
    assert pair.run(3)[3] is Status.OK
    assert pair.is_idle()


@pytest.mark.parametrize("notified", [True, False])
def test_on_deregistered__during_a_read_at_the_requester(*, notified: bool) -> None:
    pair = Pair(shape=Shape(delay_us=500, rate_bps=100_000_000))
    pair.read(1, length=4 * MIB)
    receiver = pair.a.core.peer(pair.at_a).receiver
    pair.network.run(until=lambda: receiver.landed_bytes > MIB, seconds=5)
    del pair.a.keys.ranges[KEY_A]
    if notified:
        pair.a.core.on_deregistered(KEY_A.__eq__, now=pair.network.now)
    landed = pair.a.target.copy()
    assert pair.run(1) == {1: Status.LOCAL_ERROR_INVALID_LKEY}
    assert (pair.a.target == landed).all()
    assert pair.is_idle()


def test_on_deregistered__after_a_write_was_placed() -> None:
    """The acks were lost and the key is deregistered: retransmissions are duplicates, not errors."""
    pair = Pair()
    pair.write(1, length=300_000)
    receiver = pair.b.core.peer(pair.at_b).receiver
    pair.network.run(until=lambda: receiver.landed_bytes == 300_000, seconds=5)
    pair.network.dead = set(range(4))
    pair.network.run(seconds=0.05)
    del pair.b.keys.ranges[KEY_B]
    pair.network.dead = set()
    assert pair.run(1) == {1: Status.OK}


# -- invalid requests -----------------------------------------------------------------------------------------------


def test_responder__without_memory_refuses() -> None:
    pair = Pair()
    pair.b.core._shared.memory = None
    pair.write(1, length=1)
    pair.read(2, length=1)
    assert pair.run(1, 2) == {1: BAD, 2: BAD}
