"""nitro_emu.chip.pcrs: registers, and the log that they are computed from."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.chip.pcrs import BOOT_PCRS, MAX_DESCRIPTION, PcrEvent, event_untrusted, replay
from nitro_emu.errors import TrustError

events = st.lists(
    st.builds(PcrEvent, st.integers(0, BOOT_PCRS - 1), st.binary(min_size=48, max_size=48), st.text(max_size=20))
)


@given(events.filter(bool), st.data())
def test_a_changed_log_makes_other_registers(log: list[PcrEvent], data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(log) - 1))
    bit = data.draw(st.integers(0, 48 * 8 - 1))
    old = log[position]
    digest = bytearray(old.digest)
    digest[bit // 8] ^= 1 << bit % 8
    other = PcrEvent((old.index + 1) % BOOT_PCRS, old.digest, old.description)
    for changed in ([PcrEvent(old.index, bytes(digest), old.description)], [other], []):
        assert replay([*log[:position], *changed, *log[position + 1 :]]) != replay(log)


def test_a_register_is_a_hash_over_old_and_new() -> None:
    one, two = (PcrEvent(4, digit * 48, "") for digit in (b"1", b"2"))
    first = hashlib.sha384(bytes(48) + one.digest).digest()
    registers = replay([one, two])
    assert registers.pop(4) == hashlib.sha384(first + two.digest).digest()
    assert registers == dict.fromkeys({*range(BOOT_PCRS)} - {4}, bytes(48))


def test_events_are_read_back() -> None:
    event = PcrEvent(4, b"d" * 48, "the card's name")
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
        event_untrusted({**PcrEvent(4, b"d" * 48, "name").as_dict(), **changed})
    with pytest.raises(TrustError):
        event_untrusted([])
