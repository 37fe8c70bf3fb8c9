from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.compare.errors import TransferError
from scripts.compare.evaluate import Ending, Record, evaluate, number

SENT = {"event": "sent", "seconds": 2.0, "verified": True, "retransmitted_fraction": 0.01}
RECEIVED = {"event": "received", "seconds": 1.9, "longest_stall_ms": 7.5}
GOOD = Record(
    byte_count=1000,
    landed_intact=True,
    sender=Ending(status=0, last_error="", events=(SENT,)),
    receiver=Ending(status=0, last_error="", events=(RECEIVED,)),
    progress=((0.0, 0), (1.0, 400)),
    watched_s=1.95,
    bound_s=20.0,
    path_shares=(1.0,),
    relay_cpu_fraction=0.5,
)


def test_evaluate__all_is_well() -> None:
    outcome = evaluate(GOOD)
    assert outcome.verified
    assert outcome.failure is None
    assert outcome.note is None
    assert (outcome.seconds, outcome.byte_count, outcome.longest_stall_ms) == (2.0, 1000, 7.5)
    assert outcome.retransmitted_fraction == 0.01
    assert outcome.progress == ((0.0, 0), (1.0, 400), (1.9, 1000))


def test_evaluate__daemons_claim_but_the_file_is_another() -> None:
    outcome = evaluate(replace(GOOD, landed_intact=False))
    assert outcome.completed
    assert not outcome.sha256_ok
    assert outcome.failure == "the received file differs from the sent file"


def test_evaluate__given_up_at_the_bound() -> None:
    stopped = Ending(
        status=-15, last_error="interrupted", events=({"event": "stopped", "retransmitted_fraction": 0.5},)
    )
    outcome = evaluate(replace(GOOD, sender=stopped, watched_s=20.0))
    assert outcome.failure == "stopped after 20 s with 40 % received"
    assert (outcome.completed, outcome.sha256_ok, outcome.seconds) == (False, False, None)
    assert outcome.goodput_bps == 8 * 400 / 20
    assert outcome.longest_stall_ms == 19_000
    assert outcome.retransmitted_fraction == 0.5


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (replace(GOOD, failure="no port"), "no port"),
        (replace(GOOD, sender=Ending(status=1, last_error="srd: refused", events=())), "srd: refused"),
        (replace(GOOD, receiver=Ending(status=1, last_error="disk full", events=())), "disk full"),
        (replace(GOOD, sender=Ending(status=None, last_error="", events=())), "the sender did not start"),
        (replace(GOOD, sender=Ending(status=-9, last_error="", events=())), "the sender ended with status -9"),
        (replace(GOOD, sender=Ending(status=0, last_error="", events=())), "reported no success"),
        (replace(GOOD, receiver=Ending(status=-9, last_error="", events=())), "the receiver ended with status -9"),
        (
            replace(GOOD, sender=Ending(status=0, last_error="", events=({**SENT, "verified": False},))),
            "did not confirm",
        ),
    ],
)
def test_evaluate__bad_flow(record: Record, reason: str) -> None:
    outcome = evaluate(record)
    assert outcome.failure is not None
    assert reason in outcome.failure
    assert not outcome.completed
    assert not outcome.sha256_ok
    assert outcome.seconds is None


def test_evaluate__notes() -> None:
    assert evaluate(replace(GOOD, fails_spine=True)).note == "the transfer ended before the spine failed"
    assert evaluate(replace(GOOD, fails_spine=True, blackholed="spine1", blackhole_at_s=1.0)).note is None
    flows = Ending(status=0, last_error="", events=({**SENT, "subflows": [["a", "b"]]},))
    assert evaluate(replace(GOOD, sender=flows, wanted_subflows=4)).note == "1 of 4 subflows existed at the end"
    assert evaluate(replace(GOOD, sender=flows, wanted_subflows=1)).note is None


@pytest.mark.parametrize("value", [None, "3", True, [1]])
def test_number__bad_flow(value: object) -> None:
    with pytest.raises(TransferError, match="'sent': seconds is"):
        number({"event": "sent", "seconds": value}, "seconds")
