"""The outcome of a file's transfer, from its record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netns.compare.outcome import Loads, State
from netns.compare.transfer_outcome import Ending, Record, evaluate, longest_gap_s

SENT = {"event": "sent", "seconds": 2.0, "verified": True, "retransmitted_fraction": 0.01}
RECEIVED = {"event": "received", "seconds": 1.9, "longest_stall_ms": 7.5}
GOOD = Record(
    size_bytes=1000,
    landed_intact=True,
    sender=Ending(0, "", (SENT,)),
    receiver=Ending(0, "", (RECEIVED,)),
    progress=((0.0, 10), (1.0, 400)),
    watched_s=1.95,
    timeout_s=20.0,
    ideal_s=0.5,
    path_shares={"spine1": 1.0},
    loads=Loads(relay_cpu=0.5),
    backend="relay",
)


def test_evaluate__all_is_well() -> None:
    outcome = evaluate(GOOD)
    assert (outcome.state, outcome.reason, outcome.note) == (State.OK, None, None)
    assert (outcome.seconds, outcome.size_bytes, outcome.longest_stall_ms) == (2.0, 1000, 7.5)
    assert outcome.resent_fraction == 0.01
    assert outcome.progress == ((0.0, 0), (0.0, 10), (1.0, 400), (1.9, 1000))
    assert [(flow.seconds, flow.slowdown) for flow in outcome.flows] == [(2.0, 4.0)]
    assert (outcome.loads, outcome.backend, outcome.path_shares) == (GOOD.loads, "relay", {"spine1": 1.0})


def test_evaluate__both_ends_claim_but_the_file_is_another() -> None:
    outcome = evaluate(replace(GOOD, landed_intact=False))
    assert (outcome.state, outcome.seconds) == (State.FAILED, None)
    assert outcome.reason == "the received file differs from the one that was sent"


def test_evaluate__stopped_at_the_timeout() -> None:
    stopped = Ending(-15, "interrupted", ({"event": "stopped", "retransmitted_fraction": 0.5},))
    outcome = evaluate(replace(GOOD, sender=stopped, watched_s=20.1))
    assert (outcome.state, outcome.reason) == (State.TIMEOUT, "stopped after 20 s with 40 % received")
    assert (outcome.seconds, outcome.elapsed_s) == (None, 20.0)
    assert outcome.goodput_bps == 8 * 400 / 20
    assert outcome.longest_stall_ms == 19_000
    assert outcome.resent_fraction == 0.5
    assert [flow.seconds for flow in outcome.flows] == [None]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (replace(GOOD, failure="no port"), "no port"),
        (replace(GOOD, sender=Ending(1, "srd: refused", ())), "srd: refused"),
        (replace(GOOD, receiver=Ending(1, "disk full", ())), "disk full"),
        (replace(GOOD, sender=Ending(None, "", ())), "the sender did not start"),
        (replace(GOOD, sender=Ending(-9, "", ())), "the sender ended with status -9"),
        (replace(GOOD, sender=Ending(0, "", ())), "reported no success"),
        (replace(GOOD, receiver=Ending(-9, "", ())), "the receiver ended with status -9"),
        (replace(GOOD, sender=Ending(0, "", ({**SENT, "verified": False},))), "did not confirm"),
    ],
)
def test_evaluate__bad_flow(record: Record, reason: str) -> None:
    outcome = evaluate(record)
    assert (outcome.state, outcome.seconds) == (State.FAILED, None)
    assert reason in (outcome.reason or "")
    assert outcome.goodput_bps == pytest.approx(8 * 400 / 1.95)


def test_evaluate__nothing_arrived() -> None:
    outcome = evaluate(replace(GOOD, failure="nothing arrived within 10 s", progress=(), watched_s=0.0))
    assert (outcome.size_bytes, outcome.goodput_bps, outcome.progress) == (0, 0.0, ((0.0, 0),))


def test_evaluate__notes() -> None:
    assert evaluate(replace(GOOD, lacking="1 of 4 subflows")).note == "1 of 4 subflows"
    assert evaluate(replace(GOOD, untested="too late", lacking="1 of 4 subflows")).note == "too late"


def test_longest_gap__counts_the_end() -> None:
    samples = ((0.0, 0), (0.5, 1), (0.6, 1), (1.5, 2))
    assert longest_gap_s(samples, until_s=1.6) == 1.0
    assert longest_gap_s(samples, until_s=4.0) == 2.5
    assert longest_gap_s((), until_s=3.0) == 3.0
