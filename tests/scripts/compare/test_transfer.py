from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scripts.compare import conditions, contestants
from scripts.compare.contestants import Contestant
from scripts.compare.fabric import Fabric
from scripts.compare.outcome import Outcome
from scripts.compare.payload import Payload
from scripts.compare.transfer import Transfer

CLEAN, BLACKHOLE = conditions.BY_KEY["clean"], conditions.BY_KEY["blackhole"]
LISTEN = "emit('listening', port=1)\n"
LAND = "shutil.copy(source, output)\nemit('received', bytes=1, seconds=0.5, longest_stall_ms=3.0)\n"
SENT = "emit('sent', bytes=1, seconds=0.75, verified=True, retransmitted_fraction=0.1)\n"


@pytest.fixture
def run(loopback: Fabric, payload: Payload, observer: Any) -> Callable[..., Outcome]:
    def go(contestant: Contestant, *, condition: conditions.Condition = CLEAN, bound_s: float = 20.0) -> Outcome:
        return Transfer(
            contestant,
            condition=condition,
            payload=payload,
            fabric=loopback,
            observer=observer,
            bound_s=bound_s,
        ).run()

    return go


@pytest.mark.parametrize("key", ["tcp-cubic", "mptcp"])
def test_transfer__the_real_tool_over_loopback(key: str, run: Callable[..., Outcome]) -> None:
    contestant = contestants.BY_KEY[key]
    if reason := contestant.why_unavailable():
        pytest.skip(reason)
    outcome = run(contestant)
    assert outcome.verified, outcome.failure
    assert outcome.byte_count == 1 << 20
    assert outcome.progress[0] == (0.0, 0)
    assert outcome.progress[-1][1] == 1 << 20
    assert outcome.path_shares == (0.25, 0.75)
    assert outcome.note == (None if key == "tcp-cubic" else "1 of 2 subflows existed at the end")


def test_transfer__scripted_success(run: Callable[..., Outcome], scripted: Callable[[str, str], Contestant]) -> None:
    outcome = run(scripted(LISTEN + LAND, SENT))
    assert outcome.verified, outcome.failure
    assert (outcome.seconds, outcome.longest_stall_ms, outcome.retransmitted_fraction) == (0.75, 3.0, 0.1)


def test_transfer__claimed_but_never_landed_bad_flow(
    run: Callable[..., Outcome], scripted: Callable[[str, str], Contestant]
) -> None:
    outcome = run(scripted(LISTEN + LAND.replace("shutil.copy(source, output)", ""), SENT))
    assert outcome.completed
    assert not outcome.sha256_ok


def test_transfer__busiest_spine_fails_at_the_fraction(
    run: Callable[..., Outcome], scripted: Callable[[str, str], Contestant], loopback: Any, observer: Any
) -> None:
    size = 1 << 20
    progress_events = "".join(
        f"emit('progress', seconds={at}, bytes={int(at * size)})\n" for at in (0.1, 0.39, 0.41, 0.8)
    )
    outcome = run(scripted(LISTEN + progress_events + LAND, SENT), condition=BLACKHOLE)
    assert outcome.verified, outcome.failure
    assert loopback.calls.count("blackhole spine2") == 1  # it carried 300 of 400 bytes
    assert outcome.blackholed == "spine2"
    assert outcome.blackhole_at_s is not None
    assert observer.calls.index("spine2 failed") == observer.calls.index(f"progress 0.41 {int(0.41 * size)}") + 1


def test_transfer__hanging_is_given_up_at_the_bound(
    run: Callable[..., Outcome], scripted: Callable[[str, str], Contestant]
) -> None:
    progress_events = f"emit('progress', seconds=0.01, bytes={1 << 19})\nsignal.pause()"
    outcome = run(scripted(LISTEN + progress_events, "signal.pause()"), bound_s=0.3)
    assert outcome.failure == "stopped after 0.3 s with 50 % received"
    assert (outcome.completed, outcome.sha256_ok, outcome.byte_count) == (False, False, 1 << 19)
    assert outcome.elapsed_s == 0.3
    assert 250 <= outcome.longest_stall_ms <= 300


@pytest.mark.parametrize(
    ("receiver", "sender", "reason"),
    [
        ("sys.exit('cannot bind')", SENT, "cannot bind"),
        ("sys.exit(3)", SENT, "the receiver ended with status 3"),
        ("emit('listening', port='x')", SENT, "port is 'x'"),
        (LISTEN + "signal.pause()", "sys.exit('srd: no route')", "srd: no route"),
        (LISTEN + "sys.exit('disk full')", "signal.pause()", "disk full"),
        (LISTEN + "emit('progress', bytes=1)\nsignal.pause()", "signal.pause()", "seconds is None"),
        (LISTEN + LAND.replace("0.5", "'soon'"), SENT, "seconds is 'soon'"),
    ],
)
def test_transfer__bad_flow(
    run: Callable[..., Outcome],
    scripted: Callable[[str, str], Contestant],
    monkeypatch: pytest.MonkeyPatch,
    receiver: str,
    sender: str,
    reason: str,
) -> None:
    if "pause" in receiver + sender:  # the receiver never ends
        monkeypatch.setattr("scripts.compare.transfer._EXIT_BOUND_S", 0.2)
    outcome = run(scripted(receiver, sender))
    assert outcome.failure is not None
    assert reason in outcome.failure
    assert not outcome.verified
    assert outcome.seconds is None


def test_transfer__no_first_byte_bad_flow(
    run: Callable[..., Outcome], scripted: Callable[[str, str], Contestant], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.compare.transfer.FIRST_BYTE_BOUND_S", 0.2)
    outcome = run(scripted(LISTEN + "signal.pause()", "signal.pause()"))
    assert outcome.failure == "nothing arrived within 0.2 s"
    assert (outcome.goodput_bps, outcome.elapsed_s) == (0.0, 0.0)


def test_transfer__deaf_receiver_bad_flow(
    run: Callable[..., Outcome], scripted: Callable[[str, str], Contestant], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.compare.transfer.LISTEN_BOUND_S", 0.2)
    outcome = run(scripted("signal.pause()", SENT))
    assert outcome.failure == "the receiver did not listen within 0.2 s"


def test_transfer__a_condition_that_came_too_late_is_noted(
    run: Callable[..., Outcome], scripted: Callable[[str, str], Contestant]
) -> None:
    outcome = run(scripted(LISTEN + LAND, SENT), condition=replace(BLACKHOLE, blackhole_at_fraction=0.9))
    assert outcome.verified
    assert outcome.note == "the transfer ended before the spine failed"
