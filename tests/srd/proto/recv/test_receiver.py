"""The receiving half alone: bursts in; pieces, messages and acks out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from srd.proto.config import ProtocolConfig
from srd.proto.events import Extent
from srd.proto.paths.validation import AddressValidation
from srd.proto.recv.acks import REPORT_REPEATS, Acks
from srd.proto.recv.receiver import Receiver
from srd.proto.wire.control import Ack
from srd.proto.wire.data import ABORTED, Address, ReceivedBurst

SEGMENT = 1000


def burst_of(psn: int, *, count: int = 1, length: int | None = None, **changes: int) -> ReceivedBurst:
    """`count` full packets of a message; the offset and the payload offset are a function of the PSN."""
    size = count * SEGMENT
    fields: dict[str, Any] = {
        "path": 0, "path_sequence": psn, "context": 1, "sent_us": 0, "message": 0, "immediate": 7,
        "length": size if length is None else length, "offset": psn * SEGMENT, "key": 0,
        "payload_offset": 100_000 + psn * SEGMENT, "payload_bytes": size, "segment_bytes": SEGMENT,
    } | changes  # fmt: skip
    return ReceivedBurst(psn=psn, count=count, address=f"a:{fields['path']}", received_at=10.0, **fields)


def receiver(**changes: int) -> Receiver:
    config = replace(ProtocolConfig(), **changes)  # type: ignore[arg-type]  # every setting changed here is an integer
    return Receiver(config, acks=acks(config), segment_bytes=SEGMENT)


def acks(config: ProtocolConfig) -> Acks:
    """Of a peer of which only the address "home" is valid."""
    return Acks(config, addresses=AddressValidation("home", paths=config.paths, new_token=lambda: 5), overhead_bytes=0)


def due_of(ours: Receiver, *, now: float = 10.0, room_bytes: int = 8972) -> tuple[Ack, Address, int]:
    """Return the ack that is due, where it goes, and over which local path."""
    due = ours.acks.poll(context=1, now=now, room_bytes=room_bytes)
    assert due is not None
    return due


def ack_of(ours: Receiver, *, now: float = 10.0, room_bytes: int = 8972) -> Ack:
    return due_of(ours, now=now, room_bytes=room_bytes)[0]


# -- messages -------------------------------------------------------------------------------------------------------


def test_expects_more_data__while_more_is_missing_than_comes_at_once() -> None:
    ours, expected = receiver(), []
    for part in (burst_of(0, count=40, length=200_000, offset=0), burst_of(40, count=100, length=200_000)):
        ours.accept(part, now=10.0)
        expected.append(ours.expects_more_data)
    assert expected == [True, False]


# -- what is dropped ------------------------------------------------------------------------------------------------


def test_accept__beyond_the_psn_window() -> None:
    ours = receiver(window_packets=64)
    assert ours.accept(burst_of(64, length=10**6), now=10.0) == ([], None)
    assert ours.accept(burst_of(60, count=5, length=10**6), now=10.0) == ([], None)
    assert ours.accept(burst_of(60, count=4, length=10**6), now=10.0)[0]
    assert ours.accept(burst_of(0, length=10**6), now=10.0)[0]
    assert ours.accept(burst_of(64, length=10**6), now=10.0)[0]  # the window has moved by one
    ack = ack_of(ours)
    assert (ack.cumulative, ack.bitmap) == (1, 0b11111 << 59)


# -- acks -----------------------------------------------------------------------------------------------------------


def test_ack__reports_each_active_path_in_two_acks() -> None:
    ours = receiver()
    ours.accept(burst_of(0, length=10**6, path=3, path_sequence=50, sent_us=111), now=10.0)
    ours.accept(burst_of(1, length=10**6, path=3, path_sequence=51, sent_us=222), now=10.0)
    ours.accept(burst_of(2, length=10**6, path=9, path_sequence=7, sent_us=333), now=10.0)
    reports = ack_of(ours, now=10.0005).reports
    assert [(r.path, r.path_sequence, r.sent_us, r.packets, r.duplicates) for r in reports] == [
        (3, 51, 222, 2, 0), (9, 7, 333, 1, 0),
    ]  # fmt: skip
    assert all(499 <= report.ack_delay_us <= 500 for report in reports)
    for _ in range(REPORT_REPEATS - 1):
        assert [report.path for report in ack_of(ours).reports] == [3, 9]
    assert ack_of(ours).reports == ()


def test_ack__duplicates_are_counted_against_their_path() -> None:
    ours = receiver()
    ours.accept(burst_of(0, length=10**6, path=1), now=10.0)
    ours.accept(burst_of(0, length=10**6, path=2), now=10.0)
    assert [(r.path, r.packets, r.duplicates) for r in ack_of(ours).reports] == [(1, 1, 0), (2, 1, 1)]


def test_ack__a_reordered_packet_does_not_lower_the_path_sequence() -> None:
    ours = receiver()
    ours.accept(burst_of(0, length=10**6, path_sequence=5, sent_us=555), now=10.0)
    ours.accept(burst_of(1, length=10**6, path_sequence=4, sent_us=444), now=10.0)
    (report,) = ack_of(ours).reports
    assert (report.path_sequence, report.sent_us, report.packets) == (5, 555, 2)


def test_ack__path_sequence_wraps() -> None:
    ours = receiver()
    ours.accept(burst_of(0, length=10**6, path_sequence=2**32 - 1), now=10.0)
    ours.accept(burst_of(1, length=10**6, path_sequence=0), now=10.0)
    assert ack_of(ours).reports[0].path_sequence == 0


def test_ack__takes_the_paths_in_turn() -> None:
    ours, addresses = receiver(), set()
    for psn in range(12):
        for path in range(4):
            ours.accept(burst_of(psn * 4 + path, length=10**6, path=path, path_sequence=psn), now=10.0)
        addresses.add(due_of(ours)[1])
    assert addresses == {"a:0", "a:1", "a:2", "a:3"}


def test_ack__delay_is_never_negative() -> None:
    ours = receiver()
    ours.accept(burst_of(0, length=10**6), now=10.0)
    assert ack_of(ours, now=9.0).reports[0].ack_delay_us == 0


def test_ack__reports_the_ce_count() -> None:
    ours = receiver(window_packets=65_536)
    ours.accept(burst_of(0, count=3, length=10**9), now=10.0)
    ours.accept(burst_of(3, count=2, length=10**9, ecn_ce=True), now=10.0)
    ours.accept(burst_of(3, count=2, length=10**9, ecn_ce=True), now=10.0)
    ours.accept(burst_of(5, path=1, path_sequence=0, length=10**9, ecn_ce=True), now=10.0)
    reports = {report.path: (report.packets, report.duplicates, report.ecn_ce) for report in ack_of(ours).reports}
    assert reports == {0: (7, 2, 4), 1: (1, 0, 1)}
    ours.accept(burst_of(6, count=(1 << 16) - 7, length=10**9, ecn_ce=True), now=10.0)
    (report,) = ack_of(ours).reports
    assert report.ecn_ce == (1 << 16) - 3, "it fits into 16 bits"
    ours.accept(burst_of(3, count=4, length=10**9, ecn_ce=True), now=10.0)
    (report,) = ack_of(ours).reports
    assert report.ecn_ce == 1, "and wrap"


# -- credit ---------------------------------------------------------------------------------------------------------


def test_release__sends_a_grant_at_once_when_it_is_large() -> None:
    ours = receiver(receive_window_bytes=1 << 20, max_message_bytes=1 << 20)
    ours.accept(burst_of(0, offset=0), now=10.0)
    ack_of(ours)
    ours.acks.release((1 << 17) - 1, messages=1, now=11.0)
    assert ours.acks.due_at is None
    ours.acks.release(1, messages=1, now=12.0)
    assert ours.acks.due_at == 12.0


# -- aborted messages -----------------------------------------------------------------------------------------------


def abort(psn: int, *, end: int, length: int, count: int = 1, message: int = 0) -> ReceivedBurst:
    return burst_of(
        psn, count=count, length=length, offset=end, payload_bytes=0, segment_bytes=0, flags=ABORTED, message=message
    )


def test_on_abort__releases_pieces_and_credit_once() -> None:
    ours = receiver()
    before = ours.acks.credit_bytes
    ours.accept(burst_of(0, length=5000), now=10.0)
    ours.accept(burst_of(3, length=5000), now=10.0)
    assert ours.on_abort(abort(1, end=5, length=5000), now=10.0) == (
        Extent(0, 100_000, 1000),
        Extent(3000, 103_000, 1000),
    )
    assert not ours.incomplete
    assert ours.acks.credit_bytes == before + 5000
    assert ours.on_abort(abort(2, end=5, length=5000), now=10.0) is None
    assert ours.accept(burst_of(4, length=5000), now=10.0) == ([], None), "data after the ABORT is dropped"
    assert ours.acks.credit_bytes == before + 5000
    assert ack_of(ours).cumulative == 5


def test_on_abort__state_is_dropped_when_all_of_it_was_received() -> None:
    ours = receiver()
    ours.on_abort(abort(1, end=3, length=3000), now=10.0)
    assert ours.is_aborted(0)
    ours.on_abort(abort(0, end=3, length=3000), now=10.0)
    ours.on_abort(abort(2, end=3, length=3000), now=10.0)
    ours.on_abort(abort(4, end=6, length=100, message=9), now=10.0)
    assert not ours.is_aborted(0)
    assert ours.is_aborted(9)
    ours.accept(burst_of(3, length=1000, offset=0, message=0), now=10.0)  # 2^32 messages later
    assert ack_of(ours).cumulative == 5


def test_on_abort__of_a_message_that_was_delivered_changes_nothing() -> None:
    """The ack was lost, and the sender timed out: the ABORT is of a received message."""
    ours = receiver()
    before = ours.acks.credit_bytes
    assert ours.accept(burst_of(0, count=2), now=10.0)[1] is not None
    assert ours.on_abort(abort(0, count=2, end=2, length=2000), now=10.0) is None
    assert ours.acks.credit_bytes == before


def test_on_abort__an_end_that_lies_far_away_is_rejected() -> None:
    ours = receiver(window_packets=64)
    ours.on_abort(abort(0, end=2**64 - 1, length=100), now=10.0)
    for psn in range(1, 200):
        ours.on_abort(abort(psn, end=psn + 1, length=100, message=psn), now=10.0)
    assert not ours.is_aborted(0)


def test_refuse__what_was_accepted_before_is_a_duplicate() -> None:
    ours = receiver()
    ours.accept(burst_of(0, count=2, length=9000), now=10.0)
    assert not ours.refuse(burst_of(0, count=2), now=10.0), "it was accepted before"
    assert ours.refuse(burst_of(1, count=2), now=10.0)
    assert ours.refuse(burst_of(5, length=9000, path=7), now=10.0)
    assert ours.refuse(burst_of(5, length=9000, path=128), now=10.0)
    ack = ack_of(ours)
    assert (ack.cumulative, ack.bitmap) == (2, 0)
    assert [(report.path, report.packets, report.duplicates) for report in ack.reports] == [(0, 6, 2), (7, 1, 0)]
