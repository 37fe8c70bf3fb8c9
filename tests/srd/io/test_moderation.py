"""srd.io.moderation: pauses that follow the rate of a stream, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.io.moderation import BATCH_BYTES, BUSY_S, MAX_PAUSE_S, MIN_PAUSE_S, Moderator

PACKET_BYTES = 8908
TURNS_TO_FOLLOW = 40


def stream(moderator: Moderator, *, bytes_per_s: float, turn_s: float, turns: int = TURNS_TO_FOLLOW) -> list[float]:
    """Drive a stream at a fixed rate: each turn takes `turn_s`, and the next begins when its pause is over."""
    pauses, since_s = [], turn_s
    for _ in range(turns):
        moderator.carry(int(bytes_per_s * since_s))
        moderator.on_read(since_s=since_s)
        pauses.append(moderator.pause_s)
        since_s = max(turn_s, pauses[-1])
    return pauses


def test_pause__lasts_as_long_as_a_batch_takes_to_pass() -> None:
    pauses = stream(Moderator(), bytes_per_s=BATCH_BYTES / 0.0002, turn_s=0.00003)
    assert pauses[-1] == pytest.approx(0.0002, rel=0.01)


def test_pause__of_a_slow_stream_is_bounded() -> None:
    """At 1 Gbit/s a batch takes half a millisecond."""
    assert stream(Moderator(), bytes_per_s=125e6, turn_s=0.00003)[-1] == MAX_PAUSE_S


def test_pause__is_not_made_when_the_next_batch_arrives_at_once() -> None:
    assert not any(stream(Moderator(), bytes_per_s=4e9, turn_s=0.00003))


def test_pause__follows_a_stream_that_becomes_faster_and_slower() -> None:
    moderator = Moderator()
    assert stream(moderator, bytes_per_s=125e6, turn_s=0.00003)[-1] == MAX_PAUSE_S
    assert stream(moderator, bytes_per_s=4e9, turn_s=0.00003)[-1] == 0.0
    assert stream(moderator, bytes_per_s=125e6, turn_s=0.00003)[-1] == MAX_PAUSE_S


@pytest.mark.parametrize("first_bytes", [0, PACKET_BYTES, 1 << 20])
def test_pause__not_before_the_rate_is_known(first_bytes: int) -> None:
    moderator = Moderator()
    assert moderator.pause_s == 0.0
    moderator.carry(first_bytes)
    moderator.on_read(since_s=BUSY_S)
    assert moderator.pause_s == 0.0


def test_pause__a_gap_begins_a_new_stream() -> None:
    moderator = Moderator()
    assert stream(moderator, bytes_per_s=125e6, turn_s=0.00003)[-1]
    moderator.carry(PACKET_BYTES)
    moderator.on_read(since_s=10 * BUSY_S)
    assert moderator.pause_s == 0.0


def test_pause__counts_what_several_turns_carry_until_one_reads() -> None:
    """A sender's turns between two that read ACKs."""
    often, once = Moderator(), Moderator()
    for _ in range(TURNS_TO_FOLLOW):
        for _ in range(4):
            often.carry(PACKET_BYTES)
        once.carry(4 * PACKET_BYTES)
        for moderator in (often, once):
            moderator.on_read(since_s=0.0002)
    assert often.pause_s == once.pause_s > 0.0


@given(st.lists(st.tuples(st.integers(0, 1 << 30), st.floats(0.0, 10.0)), max_size=50))
def test_pause__is_none_or_within_its_bounds(turns: list[tuple[int, float]]) -> None:
    moderator = Moderator()
    for size_bytes, since_s in turns:
        moderator.carry(size_bytes)
        moderator.on_read(since_s=since_s)
        assert moderator.pause_s == 0.0 or MIN_PAUSE_S <= moderator.pause_s <= MAX_PAUSE_S
