"""scripts.benches.chaos.run: 300 seeds keep the contract; and a contract that is broken is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scripts.benches.cases import chaos
from scripts.benches.chaos import host as host_module
from scripts.benches.chaos.run import Run, live_through
from scripts.benches.chaos.scenario import Outage, Restart
from srd.proto.congestion import MajorityDelay
from srd.proto.sent import SentPackets
from srd.proto.seqset import SequenceSet, mask
from tests.scripts.benches.chaos.test_host import CALM

CHUNK = 50


@pytest.mark.parametrize("first", range(1, chaos.RUNS + 1, CHUNK))
def test_chaos__no_violations(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    figures = chaos.measure(range(first, first + CHUNK)).ours
    assert figures["violations"] == 0, capsys.readouterr().err
    assert figures["runs"] == CHUNK
    assert figures["delivered"] > 15 * CHUNK
    assert figures["failed_and_told"] > 0


def test_restart__of_the_receiver_is_told_to_the_sender() -> None:
    report = Run(replace(CALM, restarts=(Restart("h2", 0.1105),))).live()
    assert report.violations == []
    assert report.failed > 0
    assert report.delivered + report.failed >= report.posted


def test_outage__of_everything_fails_what_was_posted() -> None:
    outages = tuple(Outage(f"spine{number}", 0.1101, 1.8) for number in range(1, 5))
    report = Run(replace(CALM, outages=outages)).live()
    assert report.violations == []
    assert report.failed > 0


def raises(*_: object, **__: object) -> None:
    raise ValueError("no")


def all_new(_window: SequenceSet, _first: int, *, count: int) -> int:
    return mask(count)


SABOTAGE: dict[str, tuple[object, str, Callable[..., Any], str]] = {
    "the checksum is not looked at": (host_module, "internet_checksum", lambda _: 0, "wrong bytes"),
    "nothing is missing": (SentPackets, "missing", lambda *_, **__: 0, "has not ended"),
    "no duplicate is known": (SequenceSet, "insert", all_new, "was delivered 2 times"),
    "the core raises": (MajorityDelay, "on_ack", raises, r"^ValueError: no \(raises, line \d+\)$"),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_sabotage__is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A harness that cannot find anything proves nothing."""
    place, attribute, instead, expected = SABOTAGE[name]
    monkeypatch.setattr(place, attribute, instead)
    found = [violation for seed in range(1, 25) for violation in live_through(seed).violations]
    assert [violation for violation in found if re.search(expected, violation)], found


def test_measure__prints_how_to_replay(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(MajorityDelay, "on_ack", raises)
    figures = chaos.measure([3]).ours
    assert figures["violations"] == 1
    assert "seed 3: replay with: scripts/bench chaos --seed 3\n    ValueError: no" in capsys.readouterr().err
