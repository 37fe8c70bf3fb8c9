"""scripts.benches.chaos.run: 300 seeds keep the contract; and a contract that is broken is noticed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scripts.benches.cases import chaos
from scripts.benches.chaos import host as host_module
from scripts.benches.chaos.run import Run, run_scenario
from scripts.benches.chaos.scenario import Flaw, Kind, Outage, Restart, Withdrawal
from scripts.benches.chaos.target import Bytes, Keys
from srd.proto.congestion.delay import MajorityDelay
from srd.proto.send.inflight import Inflight
from srd.proto.seqset import SequenceSet, mask
from srd.proto.wire.status import Status
from tests.scripts.benches.chaos.test_host import CALM

CHUNK = 50


@pytest.mark.compiled
@pytest.mark.parametrize("first", range(1, chaos.RUNS + 1, CHUNK))
def test_chaos__no_violations(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    figures = chaos.measure(range(first, first + CHUNK)).ours
    assert figures["violations"] == 0, capsys.readouterr().err
    assert figures["runs"] == CHUNK
    assert figures["delivered"] > 5 * CHUNK
    assert figures["placed"] > 5 * CHUNK
    assert figures["failed_and_told"] > 0


def test_restart__of_the_receiver_is_told_to_the_sender() -> None:
    report = Run(replace(CALM, restarts=(Restart("h2", 0.1105),))).run()
    assert report.violations == []
    assert report.failed > 0
    assert report.delivered + report.failed >= report.posted


def test_outage__of_everything_fails_what_was_posted() -> None:
    outages = tuple(Outage(f"spine{number}", 0.1101, 1.8) for number in range(1, 5))
    report = Run(replace(CALM, outages=outages)).run()
    assert report.violations == []
    assert report.failed > 0


KINDS = (Kind.WRITE, Kind.WRITE_WITH_IMMEDIATE, Kind.READ)
REMOTE = replace(
    CALM,
    messages=tuple(
        replace(message, kind=KINDS[n % 3], payload_offset=5000 + 1000 * n, place=31_000 * n)
        for n, message in enumerate(CALM.messages)
    ),
    registered_bytes=31_000 * len(CALM.messages),
)


def test_writes_and_reads__land_and_words_are_delivered() -> None:
    report = Run(REMOTE).run()
    assert (report.posted, report.placed, report.delivered, report.failed) == (20, 20, 7, 0)
    assert report.violations == []


@pytest.mark.parametrize("flaw", [Flaw.KEY, Flaw.RANGE])
def test_flaw__every_flawed_request_is_refused_and_no_other(flaw: Flaw) -> None:
    messages = tuple(replace(message, flaw=flaw if n % 2 else Flaw.NONE) for n, message in enumerate(REMOTE.messages))
    run = Run(replace(REMOTE, messages=messages))
    report = run.run()
    assert report.violations == []
    bad = Status.REMOTE_ERROR_BAD_ADDRESS
    assert [run.ended[number] for number in range(20)] == [bad if number % 2 else Status.OK for number in range(20)]


@pytest.mark.parametrize("host", ["h1", "h2"])
def test_withdrawal__of_either_ends_keys_ends_what_uses_them(host: str) -> None:
    run = Run(replace(REMOTE, withdrawals=(Withdrawal(host, 0.1112), Withdrawal(host, 0.1142))))
    report = run.run()
    assert report.violations == []
    assert len(run.hosts[host].keys.targets) == 3
    assert report.placed + report.failed == report.posted
    assert report.failed > 0


def test_cancel__is_told_and_frees_its_memory() -> None:
    messages = tuple(replace(message, cancel_after_s=0.0001 * n) for n, message in enumerate(CALM.messages))
    run = Run(replace(CALM, messages=messages))
    report = run.run()
    assert report.violations == []
    assert report.failed > 0
    assert set(run.ended.values()) <= {Status.OK, Status.FLUSHED}
    assert len(run.responder._free) == CALM.pool_packets


def raises(*_: object, **__: object) -> None:
    raise ValueError("no")


insert = SequenceSet.insert


def all_new(window: SequenceSet, first: int, *, count: int) -> int:
    insert(window, first, count=count)
    return mask(count)


def writable_anyhow(keys: Keys, _key: int, *, offset: int, length: int) -> int:  # noqa: ARG001 - as the real one
    return (len(keys.targets) - 1 << 32) + 4096 + offset


def misplaced(keys: Keys, place: int, data: Bytes) -> None:
    keys.targets[place >> 32].memory[(place & 0xFFFFFFFF) + 1 :][: len(data)] = data


SABOTAGE: dict[str, tuple[object, str, Callable[..., Any], str]] = {
    "the checksum is not looked at": (host_module, "internet_checksum", lambda _: 0, "wrong bytes"),
    "nothing is missing": (Inflight, "missing", lambda *_, **__: 0, "has not ended"),
    "no duplicate is known": (SequenceSet, "insert", all_new, "was delivered 2 times"),
    "a copy is placed again": (SequenceSet, "insert", all_new, "was written after it had arrived"),
    "every key opens": (
        Keys,
        "remote_writable",
        writable_anyhow,
        r"had no right \((KEY|RANGE)\), but completed with OK",
    ),
    "bounds are not looked at": (Keys, "remote_writable", writable_anyhow, "written that are no message's"),
    "data lands beside its place": (Keys, "put", misplaced, "completed with OK, and is not there"),
    "the core raises": (MajorityDelay, "on_ack", raises, r"^ValueError: no \(raises, line \d+\)$"),
}


@pytest.mark.sources
@pytest.mark.parametrize("name", SABOTAGE)
def test_sabotage__is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A harness that cannot find anything proves nothing."""
    place, attribute, instead, expected = SABOTAGE[name]
    monkeypatch.setattr(place, attribute, instead)
    found = (violation for seed in range(1, 25) for violation in run_scenario(seed).violations)
    assert any(re.search(expected, violation) for violation in found)


@pytest.mark.sources
def test_measure__prints_how_to_replay(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(MajorityDelay, "on_ack", raises)
    figures = chaos.measure([3]).ours
    assert figures["violations"] == 1
    assert "seed 3: replay with: scripts/bench chaos --seed 3\n    ValueError: no" in capsys.readouterr().err
