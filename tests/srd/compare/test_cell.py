"""A cell on loopback: scripted workers, and real ones that copy a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from netns.lab.lab import Lab
from netns.topology.model import reference
from srd.compare import cell, faults
from srd.compare.cell import Measurement
from srd.compare.grid import Condition
from srd.compare.outcome import CellOutcome, CellProgress, CellState
from srd.compare.payload import Payload, prepared
from srd.compare.traffic import File, TrafficFlow

SIZE_BYTES = 1 << 20
CLEAN, BLACKHOLE = Condition({}), Condition({}, busiest_link_fails_at=0.4)
WORKER = """import json, shutil, sys
def emit(kind, **fields): print(json.dumps({'event': kind, **fields}), flush=True)
def hear(): return json.loads(sys.stdin.readline())
source, output = (sys.argv[sys.argv.index(name) + 1] for name in ('--file', '--into'))
"""
READY = "emit('listening', port=1)\nreceives = bool(hear()['arriving'])\nemit('ready')\nhear()\n"
LAND = "if receives: shutil.copy(source, output)\n"
SENT = "if not receives: emit('flow', number=1, seconds=0.75)\n"
ACCOUNT = "hear()\nstall = 3.0 if receives else None\n"
ACCOUNT += "emit('account', sent=10, resent=int(not receives), longest_stall_ms=stall, subflows=None, cpu_s=0.0)\n"
ACCOUNT += "sys.stdin.read()\n"

Run = Callable[..., CellOutcome]


class Loopback:
    """A lab of which both hosts are this machine; its second spine carries three quarters."""

    topology = reference()
    backend = "loopback"

    def __init__(self) -> None:
        self._readings = 0

    def address(self, _host: str) -> str:
        return "127.0.0.1"

    def pinned_addresses(self, _host: str) -> Mapping[str, str]:
        return dict.fromkeys(self.topology.spines, "127.0.0.1")

    def command(self, _host: str, command: Sequence[str]) -> list[str]:
        return list(command)

    def relay_status(self) -> None:
        return None

    def counters(self) -> dict[str, Any]:
        count, self._readings = 100 * self._readings, self._readings + 1
        weights = {"leaf1-spine1": 1, "leaf1-spine2": 3}
        return {
            link.name: {"ab": {"bytes": weights.get(link.name, 0) * count}, "ba": {"bytes": 0}}
            for link in self.topology.links
        }


@pytest.fixture
def payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Payload:
    """A MiB of random bytes, and the directory that receives it."""
    monkeypatch.setattr("srd.compare.payload.TMPFS", tmp_path)
    source, output = tmp_path / "file.bin", tmp_path / "landed"
    with prepared(File(SIZE_BYTES)) as made:
        source.write_bytes(made.source.read_bytes())
    output.mkdir()
    return Payload(source, SIZE_BYTES, sha256=made.sha256, output=output)


@pytest.fixture
def seen() -> list[CellProgress]:
    return []


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The links that were made to fail."""
    links: list[str] = []
    monkeypatch.setattr(faults, "fail", lambda _lab, link: links.append(link))
    return links


@pytest.fixture
def run(payload: Payload, seen: list[CellProgress]) -> Run:
    def go(*, transport: str = "cubic", condition: Condition = CLEAN, timeout_s: float = 20.0) -> CellOutcome:
        return Measurement(
            cast("Lab", Loopback()),
            transport=transport,
            flows=[TrafficFlow("h1", "h2", SIZE_BYTES)],
            payload=payload,
            condition=condition,
            timeout_s=timeout_s,
            on_progress=seen.append,
        ).run()

    return go


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make the workers Python scripts, in which `source` and `output` are defined, and after READY `receives`."""
    return lambda script: monkeypatch.setattr(cell, "WORKER", (sys.executable, "-S", "-c", WORKER + script))


@pytest.mark.parametrize("transport", ["srd", pytest.param("cubic", marks=pytest.mark.root)])  # who may choose cubic
def test_file__lands(transport: str, run: Run, payload: Payload, seen: list[CellProgress]) -> None:
    outcome = run(transport=transport)
    assert outcome.state is CellState.OK, outcome.reason
    assert outcome.size_bytes == SIZE_BYTES
    assert outcome.progress[0] == (0.0, 0)
    assert outcome.progress[-1][1] == SIZE_BYTES
    assert outcome.path_shares == {"spine1": 0.25, "spine2": 0.75, "spine3": 0.0, "spine4": 0.0}
    assert outcome.resent_fraction is not None
    assert seen[0].total_bytes == SIZE_BYTES
    assert (payload.output / payload.source.name).read_bytes() == payload.source.read_bytes()


def test_file__claimed_but_never_landed_bad_flow(run: Run, scripted: Callable[[str], None]) -> None:
    scripted(READY + SENT + ACCOUNT)
    assert run().reason == "the received file differs from the one that was sent"


def test_cell__busiest_link_fails_at_the_share(
    run: Run, scripted: Callable[[str], None], failed: list[str], seen: list[CellProgress]
) -> None:
    progress = "for at in (0.1, 0.39, 0.41, 0.8):\n"
    progress += f"  if receives: emit('progress', seconds=at, bytes=int(at * {SIZE_BYTES}))\n"
    wait = "if not receives:\n  while not pathlib.Path(output, 'file.bin').exists(): pass\n"
    scripted(READY + progress + LAND + "import pathlib\n" + wait + SENT + ACCOUNT)
    outcome = run(condition=BLACKHOLE)
    assert outcome.state is CellState.OK, outcome.reason
    assert failed == ["leaf1-spine2"]
    ((_, what),) = outcome.events
    assert what == "fail leaf1-spine2, which had carried most"
    assert [each.event for each in seen] == ["", "", what, what]


def test_cell__a_condition_that_came_too_late_is_noted(run: Run, scripted: Callable[[str], None]) -> None:
    scripted(READY + LAND + SENT + ACCOUNT)
    outcome = run(condition=BLACKHOLE)
    assert (outcome.state, outcome.note) == (CellState.OK, "all had arrived before the link failed")
    assert (outcome.seconds, outcome.longest_stall_ms, outcome.resent_fraction) == (0.75, 3.0, 0.05)


def test_cell__hanging_is_stopped_at_the_timeout(run: Run, scripted: Callable[[str], None]) -> None:
    half = f"if receives: emit('progress', seconds=0.0, bytes={SIZE_BYTES // 2})\n"
    scripted(READY + half + ACCOUNT)
    outcome = run(timeout_s=0.3)
    assert (outcome.state, outcome.reason) == (CellState.TIMEOUT, "stopped after 0.3 s with 50 % received")
    assert (outcome.seconds, outcome.size_bytes) == (None, SIZE_BYTES // 2)
    assert outcome.elapsed_s >= 0.3
    assert (outcome.longest_stall_ms, outcome.resent_fraction) == (3.0, 0.05)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sys.exit('cannot bind')", "h1: cannot bind"),
        (READY + "if receives: sys.exit('disk full')\n" + ACCOUNT, "h2: disk full"),
        (READY + "if receives: emit('failed', reason='no memory')\n" + ACCOUNT, "h2: no memory"),
        (READY + "if receives: sys.exit()\n" + ACCOUNT, "h2: the worker has ended"),
    ],
)
def test_cell__bad_flow(run: Run, scripted: Callable[[str], None], script: str, reason: str) -> None:
    scripted(script)
    outcome = run()
    assert (outcome.state, outcome.seconds) == (CellState.FAILED, None)
    assert outcome.reason in {reason, reason.replace("h1", "h2")}


def test_cell__deaf_worker_bad_flow(run: Run, scripted: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell, "LISTEN_WITHIN_S", 0.2)
    scripted("hear()")
    assert run().reason == "h1: not listening within 0.2 s"
