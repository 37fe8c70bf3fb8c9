"""Fixtures for the tests of the comparison: a loopback fabric, scripted contestants, an outcome."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from scripts.compare import report as report_module
from scripts.compare.contestants import Contestant
from scripts.compare.fabric import Fabric
from scripts.compare.outcome import Outcome
from scripts.compare.payload import Payload, prepared


class LoopbackFabric:
    """Both hosts are this machine; records the calls."""

    kind = "loopback"
    spines = ("spine1", "spine2")
    capacity_bps = 1_000_000_000

    def __init__(self) -> None:
        self.calls: list[str] = []

    def address(self, _host: str) -> str:
        return "127.0.0.1"

    def pinned_address(self, _host: str, _spine: str) -> str:
        return "127.0.0.1"

    def command(self, _host: str, command: Sequence[str]) -> list[str]:
        return list(command)

    def uplink_bytes(self) -> tuple[int, ...]:
        return (100, 300) if "counted" in self.calls else self._count()

    def _count(self) -> tuple[int, ...]:
        self.calls.append("counted")
        return (0, 0)

    def relay_cpu_seconds(self) -> float | None:
        return None

    def set_loss(self, percent: float) -> None:
        self.calls.append(f"loss {percent:g}")

    def blackhole(self, spine: str) -> None:
        self.calls.append(f"blackhole {spine}")

    def restore(self) -> None:
        self.calls.append("restore")

    def add_subflow_endpoints(self) -> None:
        self.calls.append("endpoints")


class RecordingObserver:
    """Records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def condition_begins(self, condition: object, *, round_number: int) -> None:
        self.calls.append(f"round {round_number}: {getattr(condition, 'key', condition)}")

    def transfer_begins(self, contestant: Contestant) -> None:
        self.calls.append(f"{contestant.key} begins")

    def transfer_ended(self, contestant: Contestant, outcome: Outcome) -> None:
        self.calls.append(f"{contestant.key} ended {outcome.verified}")

    def progress(self, *, seconds: float, byte_count: int) -> None:
        self.calls.append(f"progress {seconds:g} {byte_count}")

    def blackholed(self, spine: str) -> None:
        self.calls.append(f"{spine} failed")


@pytest.fixture
def loopback() -> Fabric:
    return cast("Fabric", LoopbackFabric())


@pytest.fixture
def observer() -> RecordingObserver:
    return RecordingObserver()


@pytest.fixture
def payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Payload:
    """A MiB of random bytes, and the directory that receives it."""
    monkeypatch.setattr("scripts.compare.payload.TMPFS", tmp_path)
    with prepared(name="test", file=None, byte_count=1 << 20, seed=7) as made:
        source, output = tmp_path / "file.bin", tmp_path / "landed"
        source.write_bytes(made.source.read_bytes())
    output.mkdir()
    return Payload(source=source, byte_count=made.byte_count, sha256=made.sha256, output=output)


@pytest.fixture
def scripted() -> Callable[[str, str], Contestant]:
    """Make a contestant of two Python scripts; `source`, `output` and (for the sender) `port` are defined in them."""

    def make(receiver: str, sender: str) -> Contestant:
        prelude = "import json, pathlib, shutil, signal, sys\n"
        prelude += "def emit(kind, **fields): print(json.dumps({'event': kind, **fields}), flush=True)\n"

        def command(script: str, **names: object) -> list[str]:
            given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
            return [sys.executable, "-S", "-c", prelude + given + script]

        return Contestant(
            key="tcp-cubic",
            label="scripted",
            colour="#000000",
            receive=lambda ends: command(receiver, source=str(ends.source), output=str(ends.output)),
            send=lambda ends, port: command(sender, source=str(ends.source), port=port),
        )

    return make


@pytest.fixture
def outcome() -> Outcome:
    return Outcome(
        completed=True,
        sha256_ok=True,
        byte_count=100_000_000,
        elapsed_s=1.0,
        longest_stall_ms=12.5,
        path_shares=(0.25, 0.75),
        retransmitted_fraction=0.0125,
        progress=((0.0, 0), (0.5, 50_000_000), (1.0, 100_000_000)),
    )


@pytest.fixture
def report(outcome: Outcome) -> report_module.Report:
    """SRD and TCP cubic in two conditions; in the second TCP stalls."""
    hung = replace(
        outcome,
        completed=False,
        sha256_ok=False,
        byte_count=40_000_000,
        elapsed_s=20.0,
        longest_stall_ms=19_500,
        progress=((0.0, 0), (0.5, 40_000_000), (20.0, 40_000_000)),
        failure="stopped after 20 s with 40 % received",
        blackholed="spine1",
        blackhole_at_s=0.5,
    )
    slow = replace(outcome, elapsed_s=4.0, relay_cpu_fraction=0.31)
    return report_module.build(
        {"clean": {"srd": [outcome], "tcp-cubic": [slow]}, "blackhole": {"srd": [outcome], "tcp-cubic": [hung]}},
        fabric="relay",
        fabric_reason="this kernel has no netem",
        capacity_bps=1_000_000_000,
        rounds=1,
        bound_s=20.0,
        unavailable={"mptcp": "mptcp: this kernel offers <none>"},
        started_at="2026-01-01T00:00:00+00:00",
        took_s=12.0,
        spines=["spine1", "spine2"],
        mtu=9000,
        link="250 Mbit/s",
        tmpfs="/dev/shm",  # noqa: S108  a text
        srd_paths=8,
        condition_titles={"clean": "nothing lost", "blackhole": "a spine fails"},
        file={"name": "f.bin", "bytes": 100_000_000, "sha256": "ab" * 32, "seed": 1},
        environment={"kernel": "6.18", "cpu_count": 2},
    )
