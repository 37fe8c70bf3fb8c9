"""The receiving half alone: protocol errors, deadlines, and any order and split of bursts."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.proto.config import ProtocolConfig
from srd.proto.events import Extent
from srd.proto.recv.reassembly import Reassembly
from srd.proto.recv.receiver import INCOMPLETE_BEYOND_WINDOW, Receiver
from srd.proto.wire.data import ABORTED, IMMEDIATE, Opcode, ReceivedBurst
from srd.proto.wire.status import Status
from tests.changed import changed
from tests.srd.proto.recv.test_receiver import SEGMENT, abort, ack_of, acks, burst_of, receiver

# -- protocol errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"payload_bytes": 0, "length": 1, "offset": 0},
        {"length": 1000, "offset": 2**64 - 1},
        {"length": 999, "offset": 0},
        {"length": 0, "offset": 0},
        {"payload_bytes": 0, "length": 0, "offset": 1},
        {"payload_bytes": 0, "length": 0, "offset": 0, "count": 2},
        {"payload_bytes": 999, "length": 5000},
        {"payload_bytes": 1001, "length": 5000},
        {"offset": 500, "length": 5000},
        {"payload_bytes": 500, "offset": 0, "length": 400},
        {"count": 2, "payload_bytes": 1000, "length": 1000, "offset": 0},
        {"count": 2, "payload_bytes": 1500, "length": 5000, "offset": 0},
        {"count": 2, "payload_bytes": 2000, "segment_bytes": 1200, "length": 5000, "offset": 0},
    ],
    ids=str,
)
def test_accept__wrongly_packetized_data_is_neither_kept_nor_acknowledged(changes: dict[str, int]) -> None:
    ours = receiver()
    assert ours.accept(burst_of(0, **changes), now=10.0) == ([], None)
    assert not ours.incomplete
    assert ours.acks.due_at is None
    assert not ours.protocol_error


def test_accept_batch__of_longer_messages_than_a_packet() -> None:
    ours = receiver()
    assert ours.accept_batch(burst_of(0, count=3, length=SEGMENT + 1, batch=True), now=10.0) == []
    assert ours.acks.due_at is None


def limited(**changes: int) -> Receiver:
    return receiver(receive_window_bytes=10_000, max_message_bytes=10_000, receive_window_messages=3, **changes)


@pytest.mark.parametrize("kind", ["take", "empty", "batch", "abort", "write"])
def test_begin__no_more_messages_than_granted(kind: str) -> None:
    ours = limited()

    def begin(psn: int, *, message: int) -> None:
        if kind == "take":
            ours.accept(burst_of(psn, length=1500, offset=0, message=message), now=10.0)
        elif kind == "empty":
            ours.accept(burst_of(psn, length=0, offset=0, payload_bytes=0, message=message), now=10.0)
        elif kind == "batch":
            ours.accept_batch(burst_of(psn, length=SEGMENT, message=message, batch=True), now=10.0)
        elif kind == "write":
            flags = Opcode.WRITE | IMMEDIATE
            ours.land(burst_of(psn, length=10_000, message=message, flags=flags), now=10.0)

    if kind == "abort":
        ours.accept(burst_of(0, length=9000), now=10.0)
        ours.on_abort(abort(1, end=2, length=1001, message=9), now=10.0)
        assert ours.protocol_error, "a release of an unknown message counts, too"
        return
    for message in range(4):
        assert ours.protocol_error == ""
        begin(message, message=message)
    assert ours.protocol_error.startswith("began 4 messages")


def test_release__grants_messages_at_once_when_there_are_many() -> None:
    ours = receiver(receive_window_messages=80)
    ours.accept(burst_of(0, offset=0), now=10.0)
    ack_of(ours)
    ours.acks.release(0, messages=9, now=11.0)
    assert ours.acks.due_at is None
    ours.acks.release(0, messages=1, now=12.0)
    assert ack_of(ours, now=12.0).credit_messages == 90


def test_land__more_incomplete_messages_than_an_honest_sender_can_have() -> None:
    ours = receiver(window_packets=64)
    most = 64 + INCOMPLETE_BEYOND_WINDOW
    for psn in range(most):
        ours.land(burst_of(psn, length=9000, message=psn, flags=Opcode.WRITE), now=10.0)
    assert not ours.protocol_error
    ours.land(burst_of(most, length=9000, message=most, flags=Opcode.WRITE), now=10.0)
    assert ours.protocol_error == f"has {most + 1} incomplete messages, more than an honest sender can have"


@pytest.mark.parametrize("changes", [{"length": 2**32 - 1}, {"length": 1}, {"flags": ABORTED | IMMEDIATE}], ids=str)
def test_on_abort__of_another_length_than_its_message_is_no_credit(changes: dict[str, int]) -> None:
    ours = receiver()
    before = ours.acks.credit_bytes
    ours.accept(burst_of(0, length=5000), now=10.0)
    assert ours.on_abort(changed(abort(1, end=5, length=5000), **changes), now=10.0) is None
    assert ours.protocol_error
    assert ours.acks.credit_bytes == before
    assert ours.release_all() == (Extent(0, 100_000, 1000),), "once"


def test_on_abort__with_payload_is_dropped() -> None:
    ours = receiver()
    assert ours.on_abort(changed(abort(0, end=2, length=2000), payload_bytes=5), now=10.0) is None
    assert ours.acks.due_at is None


def test_on_abort__stores_no_more_than_the_window() -> None:
    ours = receiver(window_packets=64)
    for psn in range(1, 5000):
        ours.on_abort(abort(psn, end=psn + 60, length=100, message=psn), now=10.0)
        ours.on_abort(abort(0, end=1, length=100, message=10**6), now=10.0)
        assert len(ours._aborted or ()) <= 4 * 64
        assert ours.is_aborted(psn)
    assert not ours.protocol_error


def test_discard__credit_returns_with_the_abort() -> None:
    ours = receiver()
    before = ours.acks.credit_bytes, ours.acks.credit_messages
    ours.accept(burst_of(0, length=5000, key=9), now=10.0)
    released, discarded = ours.discard(0)
    assert (released, discarded.extents, discarded.key) == ((Extent(0, 100_000, 1000),), [], 9)
    assert ours.refusal(0) is Status.REMOTE_ERROR_RNR
    assert not ours.incomplete
    assert (ours.acks.credit_bytes, ours.acks.credit_messages) == before
    assert ours.on_abort(changed(abort(1, end=5, length=5000), key=9), now=10.0) == ()
    assert ours.refusal(0) is None
    assert (ours.acks.credit_bytes, ours.acks.credit_messages) == (before[0] + 5000, before[1] + 1)


def test_overdue__idle_or_too_old() -> None:
    config = replace(ProtocolConfig(), reassembly_timeout_s=30.0, request_timeout_s=50.0)
    ours = Receiver(config, acks=acks(config), segment_bytes=SEGMENT)
    assert ours.check_at == math.inf
    ours.accept(burst_of(0, length=9000), now=10.0)
    ours.accept(burst_of(1, length=9000, offset=0, message=1), now=20.0)
    assert ours.check_at == 40.0
    ours.accept(burst_of(2, length=9000), now=35.0)
    assert ours.overdue(now=40.0) == []
    assert ours.check_at == 50.0
    assert ours.overdue(now=50.0) == [1]
    ours.discard(1)
    assert ours.overdue(now=50.0) == []
    assert ours.check_at == 60.0, "by age, though data arrives"
    assert ours.overdue(now=60.0) == [0]


# -- any order, any split -------------------------------------------------------------------------------------------


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[int], list[ReceivedBurst]]:
    """Lengths of messages, and bursts of their packets as they may arrive: split, late, duplicated, in any order."""
    lengths = draw(st.lists(st.integers(0, 5 * SEGMENT), min_size=1, max_size=5))
    bursts, psn = list[ReceivedBurst](), 0
    for message, length in enumerate(lengths):
        packets = max(-(-length // SEGMENT), 1)
        for _ in range(draw(st.integers(1, 3))):
            at = 0
            while at < packets:
                count = draw(st.integers(1, packets - at))
                size = min(count * SEGMENT, length - at * SEGMENT)
                changes = {"message": message, "offset": at * SEGMENT, "payload_bytes": size}
                bursts.append(burst_of(psn + at, count=count, length=length, **changes))
                at += count
        psn += packets
    return lengths, draw(st.permutations(bursts))


@given(arrivals())
def test_accept__delivers_each_message_once_in_any_order(what: tuple[list[int], list[ReceivedBurst]]) -> None:
    lengths, bursts = what
    ours, whole = receiver(), dict[int, Reassembly]()
    truth = dict[int, tuple[int, int]]()  # what lies in memory: message and offset in it
    for number, arrived in enumerate(bursts):
        one = changed(arrived, payload_offset=number * 10_000)
        for byte in range(0, one.payload_bytes, SEGMENT):
            truth[one.payload_offset + byte] = (one.message, one.offset + byte)
        _, message = ours.accept(one, now=10.0)
        if message is not None:
            assert one.message not in whole
            whole[one.message] = message
    assert not ours.protocol_error
    assert not ours.incomplete
    assert not ours.expects_more_data
    assert {number: message.length for number, message in whole.items()} == dict(enumerate(lengths))
    for number, message in whole.items():
        at = 0
        for extent in message.extents:
            assert extent.offset == at
            for byte in range(0, extent.length, SEGMENT):
                assert truth[extent.region_offset + byte] == (number, at + byte)
            at += extent.length
        assert at == message.length


@given(
    packets=st.lists(
        st.tuples(
            st.integers(0, 12),  # PSN
            st.integers(0, 2),  # message
            st.integers(-1, 5),  # which packet of it
            st.sampled_from([1, 999, 1000, 1500, 2000, 2001, 5000]),  # length of the message
            st.sampled_from([0, 1, 500, 999, 1000, 1001]),  # payload
        ),
        max_size=40,
    )
)
def test_accept__forged_packets_deliver_whole_messages_or_none(packets: list[tuple[int, int, int, int, int]]) -> None:
    """A delivered message has its own bytes, each once; all other memory is released in the end."""
    ours, kept, delivered = receiver(), list[Extent](), list[Extent]()
    for number, (psn, message, index, length, size) in enumerate(packets):
        changes = {"message": message, "offset": index * SEGMENT, "payload_bytes": size, "segment_bytes": size}
        one = burst_of(psn, length=length, payload_offset=number * 10_000, **changes)
        pieces, whole = ours.accept(one, now=10.0)
        kept += pieces
        if whole is not None:
            assert whole.length == length
            assert sum(extent.length for extent in whole.extents) == length
            assert all(packets[extent.region_offset // 10_000][1] == message for extent in whole.extents)
            assert whole.landed_ranges()
            delivered += whole.extents
        if ours.protocol_error:
            break
    assert sorted([*delivered, *ours.release_all()], key=astuple) == sorted(kept, key=astuple)
