"""What shows that a byte is missing, wrong, or in a wrong place: rows of messages, and slots of memory."""

from __future__ import annotations

import numpy as np
import pytest

from srd.perf.errors import PerfError
from srd.perf.payload import PayloadSource
from srd.perf.sweep.memory import MessageSlots, number_of, share
from srd.perf.sweep.roles import CHECKED_BYTES, PartCheck
from srd.perf.sweep.rows import MAX_ROWS, Rows, Tally

PEERS, DEPTH = 3, 4


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 64, 100_000, 5 << 20])
def test_rows__say_which_they_are(size: int) -> None:
    rows = Rows(size)
    assert 2 <= rows.count <= MAX_ROWS
    numbers = np.random.default_rng(7).permutation(min(rows.count, 500))
    assert np.array_equal(rows.numbers_untrusted(rows.rows[numbers]), numbers)
    offsets = rows.offsets(rows.count - 1, 3)
    assert list(offsets) == [(rows.count - 1) * size, 0, size]
    rows.close()


@pytest.mark.parametrize("size", [3, 4, 64, 100_000])
def test_rows__bad_flow(size: int) -> None:
    rows = Rows(size)
    for at in {0, size // 2, size - 1} if size > 4 else ():  # shorter ones are nothing but their number
        wrong = rows.rows[1:2].copy()
        wrong[0, at] ^= 0x80
        with pytest.raises(PerfError, match="is not what was sent"):
            rows.numbers_untrusted(wrong)
    with pytest.raises(PerfError, match="instead of"):
        rows.numbers_untrusted(rows.rows[:1, :-1])
    rows.close()


def test_tally__each_once() -> None:
    rows = Rows(64)
    tally = Tally(rows)
    for number in (2, 0, 1):
        tally.add(rows.rows[number : number + 1])
    tally.require_once(3)
    for sent in (2, 4):
        with pytest.raises(PerfError, match="has arrived"):
            tally.require_once(sent)
    tally.add(rows.rows[1:2])
    with pytest.raises(PerfError, match="row 1 was sent 1 times, and has arrived 2 times"):
        tally.require_once(3)
    rows.close()


def write_round(made: MessageSlots, source: PayloadSource, *, first: int, count: int) -> None:
    for peer in range(PEERS):
        for request in range(first, first + share(count, peer=peer, peers=PEERS)):
            at = made.offset(peer) + made.slot_offset(request)
            block = source.block(number_of(request, peer=peer, peers=PEERS))
            made.region.array[at : at + len(block)] = block


@pytest.mark.parametrize("size", [64, 5000])
def test_slots__a_byte_that_is_wrong_or_missing_is_found(size: int) -> None:
    source = PayloadSource(size)
    made = MessageSlots(source, size_bytes=size, depth=DEPTH, peers=PEERS)
    for at in (0, size - 1, size, DEPTH * PEERS * size - 1):
        made.prepare(0)
        write_round(made, source, first=0, count=DEPTH * PEERS)
        made.region.array[at] ^= 1
        with pytest.raises(PerfError, match=rf"peer {at // size // DEPTH + 1}: byte {at % size} of request"):
            made.compare(0, DEPTH * PEERS)
    made.close()
    source.close()


@pytest.mark.parametrize("size", [1, 64, CHECKED_BYTES, CHECKED_BYTES + 1, 3 * CHECKED_BYTES + 17])
def test_part_check__finds_any_wrong_byte_within_as_many_messages_as_have_all_parts(size: int) -> None:
    source = PayloadSource(size)
    for at in {0, size // 2, size - 1}:
        wrong = bytearray(source.block(3))
        wrong[at] ^= 1
        check = PartCheck(source)
        views = [memoryview(wrong)[: size // 3], memoryview(wrong)[size // 3 :]]
        with pytest.raises(PerfError, match=f"byte {at} of message 3 is not what was sent"):
            check_all(check, views, number=3, length=size)
    check_all(PartCheck(source), [memoryview(bytearray(source.block(5)))], number=5, length=size)
    source.close()


def check_all(check: PartCheck, views: list[memoryview], *, number: int, length: int) -> None:
    for _ in range(2 * length // CHECKED_BYTES + 2):
        check(views, number=number, length=length)
