"""scripts/check_weight.py: what is heavier than was recorded, and by how much it may be, is named; the rest passes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts import check_weight
from scripts.harness.environment import environment
from scripts.harness.errors import BenchError

FIGURES = {"cpu_ratio_64b": 20.0, "cpu_ratio_64b_secure": 30.0, "bytes_per_peer": 8000.0}


@pytest.fixture(autouse=True)
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What was recorded, for a build that is compiled."""
    path = tmp_path / "weights.json"
    entry = {"date": "2026-11-27", "revision": "c27ea1c4", "python": "3.11.2", "figures": FIGURES}
    path.write_text(json.dumps({str(environment()["machine"]): entry}))
    monkeypatch.setattr(check_weight, "RECORDED", path)
    monkeypatch.setattr(check_weight, "BUILD", "compiled")
    return path


def measured(monkeypatch: pytest.MonkeyPatch, **figures: float) -> None:
    """Put these figures in the place of what is measured, which else is what was recorded."""
    monkeypatch.setattr(check_weight, "measure", lambda: FIGURES | figures)


@pytest.mark.parametrize(
    ("figure", "value", "limit"),
    [("cpu_ratio_64b", 30.01, "30"), ("cpu_ratio_64b_secure", math.nan, "45"), ("bytes_per_peer", 8896.0, "8400")],
)
def test_main__names_what_is_heavier(figure: str, value: float, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, **{figure: value})
    done = CliRunner().invoke(check_weight.main)
    assert done.exit_code == 1
    (line,) = [line for line in done.output.splitlines() if line.startswith("heavier: ")]
    assert line.startswith(f"heavier: {figure}: measured {value:.4g}, limit {limit}, ")
    assert f"the {FIGURES[figure]:.4g} recorded 2026-11-27 of c27ea1c4 with Python 3.11.2; repeat with: " in line


def test_main__as_heavy_as_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, cpu_ratio_64b=30.0, cpu_ratio_64b_secure=1.0, bytes_per_peer=8400.0)
    done = CliRunner().invoke(check_weight.main)
    assert done.exit_code == 0, done.output
    assert "bytes_per_peer 8400 (recorded 8000)" in done.output


def test_main__what_is_heavier_once_was_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = iter([{"cpu_ratio_64b": 40.0}, {"cpu_ratio_64b_secure": 60.0}])
    monkeypatch.setattr(check_weight, "measure", lambda: FIGURES | next(runs))
    done = CliRunner().invoke(check_weight.main)
    assert done.exit_code == 0, done.output
    assert "cpu_ratio_64b 20 (recorded 20)\ncpu_ratio_64b_secure 30 (recorded 30)" in done.output


def test_main__record_is_what_later_runs_compare_with(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, bytes_per_peer=9000.0)
    assert CliRunner().invoke(check_weight.main).exit_code == 1
    assert CliRunner().invoke(check_weight.main, ["--record"]).exit_code == 0
    assert CliRunner().invoke(check_weight.main).exit_code == 0
    (entry,) = json.loads(recorded.read_text()).values()
    assert entry["figures"]["bytes_per_peer"] == 9000.0


def test_main__on_another_processor_memory_alone_is_compared(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = json.loads(recorded.read_text()).values()
    recorded.write_text(json.dumps({"some processor": entry}))
    measured(monkeypatch, cpu_ratio_64b=300.0)
    done = CliRunner().invoke(check_weight.main)
    assert done.exit_code == 0, done.output
    assert "cpu_ratio_64b 300 (nothing recorded on " in done.output
    measured(monkeypatch, bytes_per_peer=9000.0)
    assert CliRunner().invoke(check_weight.main).exit_code == 1
    assert CliRunner().invoke(check_weight.main, ["--record"]).exit_code == 0
    assert json.loads(recorded.read_text())["some processor"] == entry
    assert CliRunner().invoke(check_weight.main).exit_code == 0


def test_main__what_cannot_be_measured_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def void() -> dict[str, float]:
        raise BenchError("the hosts dropped 3 datagrams")

    monkeypatch.setattr(check_weight, "measure", void)
    done = CliRunner().invoke(check_weight.main)
    assert (done.exit_code, done.output) == (1, "scripts/check_weight.py: the hosts dropped 3 datagrams\n")


def test_main__an_interpreted_build_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_weight, "BUILD", "interpreted")
    done = CliRunner().invoke(check_weight.main)
    assert done.exit_code == 1
    assert "only a compiled build can be compared" in done.output
