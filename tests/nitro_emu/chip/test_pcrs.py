"""nitro_emu.chip.pcrs: registers, locks, and the log that they can be computed from."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.chip.pcrs import BOOT_PCRS, MAX_DESCRIPTION, PCRS, Event, PcrBank, event_untrusted, replay
from nitro_emu.errors import TrustError

events = st.lists(
    st.builds(Event, st.integers(0, BOOT_PCRS - 1), st.binary(min_size=48, max_size=48), st.text(max_size=20))
)


@given(events)
def test_registers_are_what_the_log_makes_them(log: list[Event]) -> None:
    bank = PcrBank()
    for event in log:
        bank.extend(event.index, event.digest)
    assert replay(log) == bank.boot()


@given(events.filter(bool), st.data())
def test_a_changed_log_makes_other_registers(log: list[Event], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(log) - 1))
    bit = data.draw(st.integers(0, 48 * 8 - 1))
    old = log[position]
    digest = bytearray(old.digest)
    digest[bit // 8] ^= 1 << bit % 8
    other = Event((old.index + 1) % BOOT_PCRS, old.digest, old.description)
    for changed in ([Event(old.index, bytes(digest), old.description)], [other], []):
        assert replay([*log[:position], *changed, *log[position + 1 :]]) != replay(log)


def test_extend_is_a_hash_over_old_and_new() -> None:
    bank = PcrBank()
    assert bank.extend(16, b"data") == hashlib.sha384(bytes(48) + b"data").digest() == bank.value(16)


def test_locked_registers_do_not_change() -> None:
    bank = PcrBank()
    bank.lock(3)
    with pytest.raises(TrustError, match="PCR3 is locked"):
        bank.extend(3, b"data")
    with pytest.raises(TrustError, match="PCR3 is locked already"):
        bank.lock(3)
    assert bank.locked() == {3: bytes(48)}
    bank.lock_first(16)
    bank.lock_first(16)
    assert set(bank.locked()) == set(range(16))


@pytest.mark.parametrize("index", [-1, PCRS])
def test_there_are_32(index: int) -> None:
    bank = PcrBank()
    for call in (bank.value, bank.is_locked, bank.lock, lambda i: bank.extend(i, b"")):
        with pytest.raises(IndexError):
            call(index)
    with pytest.raises(IndexError):
        bank.lock_first(PCRS + 1)


def test_events_are_read_back() -> None:
    event = Event(4, b"d" * 48, "the card's name")
    assert event_untrusted(event.as_dict()) == event
    assert event_untrusted({**event.as_dict(), "digest": event.digest}) == event


@pytest.mark.parametrize(
    "changed",
    [
        {"index": 16},
        {"index": -1},
        {"index": True},
        {"index": None},
        {"digest": "00"},
        {"digest": "no hex"},
        {"digest": 1},
        {"description": None},
        {"description": "x" * (MAX_DESCRIPTION + 1)},
    ],
)
def test_what_is_no_event_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(TrustError):
        event_untrusted({**Event(4, b"d" * 48, "name").as_dict(), **changed})
    with pytest.raises(TrustError):
        event_untrusted([])
