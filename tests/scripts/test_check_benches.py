"""scripts/check_benches.py: a figure that is missed fails it, by name; and it runs all there is."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from scripts import check_benches
from scripts.benches.case import Case, CaseOptions
from scripts.benches.outcome import Round, Wanted
from scripts.benches.registry import CASES
from scripts.harness.errors import BenchError
from tests.dying import assert_leaves_nothing

WANTED = (Wanted("used_fraction", ">=", 0.9), Wanted("lost", "<=", 0))


def case_of(monkeypatch: pytest.MonkeyPatch, name: str, figures: Callable[[int], dict[str, float]]) -> None:
    """Put another measurement in a case's place."""

    def rounds(request: CaseOptions) -> Iterator[Round]:
        assert request.seed is not None
        yield Round(request.seed, figures(request.seed))

    monkeypatch.setitem(CASES, name, Case(name, "", "virtual", rounds, WANTED))


def test_longest_first__is_every_case_in_virtual_time_that_wants_anything() -> None:
    virtual = {name for name, case in CASES.items() if case.fabric == "virtual" and case.wanted}
    assert set(check_benches.LONGEST_FIRST) == virtual
    assert all(wanted.over == "worst" for name in virtual for wanted in CASES[name].wanted)


def test_measure_all__its_processes_end_with_it() -> None:
    assert_leaves_nothing(
        """
import os, signal
from scripts import check_benches

def measure(name, seed):
    os.write(write_fd, f"{os.getpid()} ".encode())
    signal.pause()

read_fd, write_fd = os.pipe()
check_benches.measure = measure
os.cpu_count = lambda: 2
if not os.fork():  # measures nothing, so it prints what the others write
    pids = b""
    while pids.count(b" ") < 2:
        pids += os.read(read_fd, 100)
    print(pids.decode(), flush=True)
    os._exit(0)
check_benches.measure_all([("loss", 1), ("loss", 2)])
""",
        processes=2,
    )


def test_main__all_met(monkeypatch: pytest.MonkeyPatch) -> None:
    case_of(monkeypatch, "loss", lambda seed: {"used_fraction": 0.96 - seed / 100, "lost": 0})
    for arguments, seeds, worst in ((["loss"], "seed 1", 0.95), (["loss", "--long"], "seeds 1 to 5", 0.91)):
        done = CliRunner().invoke(check_benches.main, arguments)
        assert done.exit_code == 0, done.output
        assert done.output == f"loss: {seeds}: used_fraction {worst} (>= 0.9), lost 0 (<= 0)\n"


def test_main__names_case_seed_figure_value_and_what_was_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    case_of(monkeypatch, "loss", lambda seed: {"used_fraction": 0.95 if seed != 3 else 0.5, "lost": 0})
    case_of(monkeypatch, "fair", lambda _: {"used_fraction": 0.95, "lost": 0})
    done = CliRunner().invoke(check_benches.main, ["fair", "loss", "--long"])
    assert done.exit_code == 1
    assert "loss: seeds 1 to 5: used_fraction 0.5 (>= 0.9)" in done.output
    missed = [line for line in done.output.splitlines() if line.startswith("missed")]
    assert missed == ["missed: loss seed 3: used_fraction 0.5, wanted >= 0.9; repeat with: scripts/bench loss --seed 3"]


def test_main__only_with_long_all_cases_or_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in check_benches.LONGEST_FIRST:
        case_of(monkeypatch, name, lambda _: {"used_fraction": 1.0, "lost": 0})
    for arguments, left_out in (([], set(check_benches.LONG)), (["--long"], set())):
        done = CliRunner().invoke(check_benches.main, arguments)
        assert {line.partition(":")[0] for line in done.output.splitlines()} == (
            set(check_benches.LONGEST_FIRST) - left_out
        )
    for name in check_benches.LONG:
        assert CliRunner().invoke(check_benches.main, [name]).output.startswith(f"{name}: seed 1: ")


def test_main__chaos_has_fresh_seeds_with_long_and_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_benches, "FRESH_CHAOS_RUNS", 3)
    case_of(monkeypatch, "chaos", lambda _: {"used_fraction": 1.0, "lost": 1})
    seen = []
    for arguments in (["chaos", "--long"], ["chaos", "--long"], ["chaos"], ["chaos"]):
        done = CliRunner().invoke(check_benches.main, arguments)
        assert done.exit_code == 1
        missed = [line for line in done.output.splitlines() if line.startswith("missed")]
        seeds = [int(line.rsplit(" ", 1)[1]) for line in missed]
        assert missed[0] == (
            f"missed: chaos seed {seeds[0]}: lost 1, wanted <= 0; repeat with: scripts/bench chaos --seed {seeds[0]}"
        )
        assert f"chaos: seeds {seeds[0]} to {seeds[-1]}:" in done.output
        seen.append(seeds)
    assert [len(seeds) for seeds in seen[:2]] == [3, 3]
    assert seen[0] != seen[1]
    assert seen[2] == seen[3] == list(check_benches.CHAOS_SEEDS)


def test_main__what_cannot_be_measured_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int) -> dict[str, float]:
        if seed == 1:
            raise BenchError("214 of 250 messages were delivered")
        if seed == 2:
            raise ZeroDivisionError("division by zero")
        return {"used_fraction": math.nan, "lost": 0}

    case_of(monkeypatch, "loss", broken)
    done = CliRunner().invoke(check_benches.main, ["loss", "--long"])
    assert done.exit_code == 1
    assert "loss seed 1: 214 of 250 messages were delivered; repeat" in done.output
    assert "loss seed 2: ZeroDivisionError: division by zero; repeat" in done.output
    assert "loss seed 3: used_fraction nan, wanted >= 0.9; repeat" in done.output


def test_main__what_does_not_end_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_: int) -> dict[str, float]:
        signal.raise_signal(signal.SIGALRM)
        return {"used_fraction": 1.0, "lost": 0}

    case_of(monkeypatch, "loss", endless)
    done = CliRunner().invoke(check_benches.main, ["loss"])
    assert done.exit_code == 1
    assert "a run died, or took longer than 300 s" in done.output
