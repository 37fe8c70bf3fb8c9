"""srd.io.turn_policy: the state after a turn, from what it carried."""

from __future__ import annotations

from typing import Final

import pytest

from srd.io.moderation import BUSY_S, POLL_S
from srd.io.turn_policy import BULK_BYTES, REPLIES_WITHIN_S, DriverState, Turn, TurnPolicy

ADAPTIVE_S: Final = 0.0003
SOON_S: Final = BUSY_S / 2
LATE_S: Final = 2 * REPLIES_WITHIN_S
WAITING, YIELDED, COALESCING, LIMITED = (
    DriverState.WAITING,
    DriverState.YIELDED,
    DriverState.COALESCING,
    DriverState.LIMITED,
)


def turn(*, read_bytes: int = 0, sent_bytes: int = 0, messages: int = 0, ended: bool = False) -> Turn:
    made = Turn(reads=True)
    made.received = True
    made.read_bytes, made.sent_bytes, made.messages, made.ended = read_bytes, sent_bytes, messages, ended
    made.events = messages
    return made


def policy(*, since_s: float, pauses: bool = True, adaptive_poll_s: float = ADAPTIVE_S) -> TurnPolicy:
    """Return a policy whose last two turns that read were so far apart."""
    made = TurnPolicy(adaptive_poll_s=adaptive_poll_s, pauses=pauses)
    made.on_read(1.0)
    made.on_read(1.0 + since_s)
    return made


def after(made: TurnPolicy, done: Turn, *, state: DriverState = WAITING, may_read: bool = True) -> DriverState:
    return made.after(done, state=state, yields=False, expects_more=True, may_read=may_read)


@pytest.mark.parametrize(
    ("done", "since_s", "expects_more", "yields"),
    [
        (turn(read_bytes=64, messages=1), SOON_S, False, True),
        (turn(read_bytes=64, messages=3), SOON_S, True, True),  # short ones
        (turn(read_bytes=BULK_BYTES, messages=1), SOON_S, False, True),  # alone
        (turn(read_bytes=BULK_BYTES, messages=1), SOON_S, True, False),
        (turn(read_bytes=BULK_BYTES, messages=2), SOON_S, False, False),
        (turn(read_bytes=64, messages=1), LATE_S, False, False),
        (turn(read_bytes=64, messages=1, ended=True), SOON_S, False, False),
        (turn(read_bytes=64), SOON_S, False, False),
    ],
)
def test_yields__to_whoever_may_reply(done: Turn, since_s: float, *, expects_more: bool, yields: bool) -> None:
    assert policy(since_s=since_s).yields(done, expects_more=expects_more) is yields


def test_after__a_stream_pauses_as_long_as_its_rate_says() -> None:
    made = TurnPolicy(adaptive_poll_s=ADAPTIVE_S, pauses=True)
    states = []
    for number in range(1, 5):
        made.on_read(number * 0.0002)
        states.append(after(made, turn(read_bytes=BULK_BYTES)))
    assert states == [COALESCING] * 4
    assert made.pause_until is not None
    assert made.read_at < made.pause_until < made.read_at + 0.001
    assert made.poll_s == 0.0


def test_after__at_a_high_rate_it_polls() -> None:
    made = policy(since_s=0.00001)
    assert after(made, turn(read_bytes=1 << 20)) is WAITING
    assert made.poll_s == POLL_S


def test_after__a_turn_that_only_sends_leaves_a_pause_as_it_is() -> None:
    made = policy(since_s=SOON_S)
    assert after(made, turn(read_bytes=BULK_BYTES)) is COALESCING
    until = made.pause_until
    assert after(made, Turn(reads=False), state=COALESCING) is COALESCING
    assert made.pause_until == until
    assert after(made, Turn(reads=False), state=YIELDED) is WAITING


def test_after__an_exhausted_allowance_comes_before_all_but_a_yield() -> None:
    made = policy(since_s=SOON_S)
    assert after(made, turn(read_bytes=BULK_BYTES), may_read=False) is LIMITED
    assert made.pause_until is None
    done = turn(read_bytes=64, messages=1)
    assert made.after(done, state=WAITING, yields=True, expects_more=False, may_read=False) is YIELDED


def test_polls_for_rest__half_as_often_after_each_time_in_vain() -> None:
    made = policy(since_s=SOON_S)
    polled = []
    for number in range(200):
        if made.polls_for_rest():
            polled.append(number)
            made.on_rest(has_come=False)
    assert polled == [0, 2, 6, 14, 30, 62, 126, 190]
    while not made.polls_for_rest():
        pass
    made.on_rest(has_come=True)
    assert made.polls_for_rest()
