"""scripts.benches.chaos.run: 300 seeds keep the invariants, and reintroduced defects violate them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scripts.benches.case import CaseOptions
from scripts.benches.cases import chaos
from scripts.benches.chaos import host as host_module
from scripts.benches.chaos.run import ChaosRun, run_scenario
from scripts.benches.chaos.scenario import Flaw, MessageKind
from scripts.benches.chaos.target import GUARD_BYTES, Bytes, CheckedKeys
from srd.proto.base.seqset import SequenceSet, mask
from srd.proto.congestion.delay import MajorityDelay
from srd.proto.outgoing.inflight import Inflight
from srd.proto.wire.status import Status
from tests.scripts.benches.chaos.test_host import FAULT_FREE

CHUNK = 50


@pytest.mark.compiled
@pytest.mark.parametrize("first", range(1, chaos.RUNS + 1, CHUNK))
def test_chaos__no_violations(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    (round_,) = chaos.measure(CaseOptions(seed=first, runs=CHUNK))
    figures = round_.ours
    assert figures["violations"] == 0, capsys.readouterr().err
    assert figures["runs"] == CHUNK
    assert figures["delivered"] > 5 * CHUNK
    assert figures["placed"] > 5 * CHUNK
    assert figures["failed_requests"] > 0


KINDS = (MessageKind.WRITE, MessageKind.WRITE_WITH_IMMEDIATE, MessageKind.READ)
REMOTE = replace(
    FAULT_FREE,
    messages=tuple(
        replace(message, kind=KINDS[n % 3], payload_offset=5000 + 1000 * n, target_offset=31_000 * n)
        for n, message in enumerate(FAULT_FREE.messages)
    ),
    registered_bytes=31_000 * len(FAULT_FREE.messages),
)


@pytest.mark.parametrize("flaw", [Flaw.KEY, Flaw.RANGE])
def test_flaw__only_flawed_requests_are_refused(flaw: Flaw) -> None:
    messages = tuple(replace(message, flaw=flaw if n % 2 else Flaw.NONE) for n, message in enumerate(REMOTE.messages))
    run = ChaosRun(replace(REMOTE, messages=messages))
    report = run.run()
    assert report.violations == []
    bad = Status.REMOTE_ERROR_BAD_ADDRESS
    assert [run.ended[number] for number in range(20)] == [bad if number % 2 else Status.OK for number in range(20)]


def test_cancel__completes_flushed_and_frees_memory() -> None:
    messages = tuple(replace(message, cancel_after_s=0.0001 * n) for n, message in enumerate(FAULT_FREE.messages))
    run = ChaosRun(replace(FAULT_FREE, messages=messages))
    report = run.run()
    assert report.violations == []
    assert report.failed > 0
    assert set(run.ended.values()) <= {Status.OK, Status.FLUSHED}
    assert len(run.responder._free) == FAULT_FREE.pool_packets


def raises(*_: object, **__: object) -> None:
    raise ValueError("no")


insert = SequenceSet.insert


def all_new(window: SequenceSet, first: int, *, count: int) -> int:
    insert(window, first, count=count)
    return mask(count)


def always_writable(keys: CheckedKeys, _key: int, *, peer: int, offset: int, length: int) -> int:  # noqa: ARG001 - as the real one
    return (len(keys.targets) - 1 << 32) + 4096 + offset


def also_of_withdrawn(keys: CheckedKeys, key: int, *, peer: int, offset: int, length: int) -> int | None:  # noqa: ARG001
    of = next((number for number, target in enumerate(keys.targets) if target.key == key), None)
    return None if of is None else (of << 32) + GUARD_BYTES + offset


def misplaced(keys: CheckedKeys, address: int, data: Bytes) -> None:
    keys.targets[address >> 32].memory[(address & 0xFFFFFFFF) + 1 :][: len(data)] = data


SABOTAGE: dict[str, tuple[object, str, Callable[..., Any], str]] = {
    "the checksum is ignored": (host_module, "internet_checksum", lambda _: 0, "wrong bytes"),
    "no packet is missing": (Inflight, "missing", lambda *_, **__: 0, "has not completed"),
    "duplicates are delivered": (SequenceSet, "insert", all_new, "was delivered 2 times"),
    "duplicates are placed": (SequenceSet, "insert", all_new, "was written after it had arrived"),
    "every key is valid": (
        CheckedKeys,
        "remote_writable",
        always_writable,
        r"must be refused \((KEY|RANGE)\), but completed with OK",
    ),
    "bounds are ignored": (CheckedKeys, "remote_writable", always_writable, "written outside of all messages"),
    "withdrawn keys are valid": (
        CheckedKeys,
        "remote_writable",
        also_of_withdrawn,
        "memory was written after its key was withdrawn",
    ),
    "data is misplaced": (CheckedKeys, "put", misplaced, "completed with OK, but has not landed"),
    "the core raises": (MajorityDelay, "on_ack", raises, r"^ValueError: no \(raises, line \d+\)$"),
}


@pytest.mark.sources
@pytest.mark.parametrize("name", SABOTAGE)
def test_sabotage__is_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation test: each defect violates an invariant."""
    owner, attribute, replacement, expected = SABOTAGE[name]
    monkeypatch.setattr(owner, attribute, replacement)
    found = (violation for seed in range(1, 25) for violation in run_scenario(seed).violations)
    assert any(re.search(expected, violation) for violation in found)


@pytest.mark.sources
def test_measure__prints_how_to_replay(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(MajorityDelay, "on_ack", raises)
    figures = next(chaos.measure(CaseOptions(seed=3))).ours
    assert figures["violations"] == 1
    assert "faults; replay with: scripts/bench chaos --seed 3\n    violation: ValueError: no" in capsys.readouterr().err
