"""scripts/check_benches.py: a figure that is missed fails it, by name; and it runs all there is."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner

from scripts import check_benches
from scripts.benches.outcome import Round, Wanted
from scripts.benches.registry import CASES, Case, Request
from scripts.harness.errors import BenchError
from tests.dying import assert_leaves_nothing

WANTED = (Wanted("used_fraction", ">=", 0.9), Wanted("lost", "<=", 0))


def case_of(monkeypatch: pytest.MonkeyPatch, name: str, figures: Callable[[int], dict[str, float]]) -> None:
    """Put another measurement in a case's place."""

    def rounds(request: Request) -> Iterator[Round]:
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
    case_of(monkeypatch, "loss", lambda seed: {"used_fraction": 0.9 + seed / 100, "lost": 0})
    done = CliRunner().invoke(check_benches.main, ["loss"])
    assert done.exit_code == 0, done.output
    assert done.output == "loss: seeds 1 to 5: used_fraction 0.91 (>= 0.9), lost 0 (<= 0)\n"


def test_main__names_case_seed_figure_value_and_what_was_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    case_of(monkeypatch, "loss", lambda seed: {"used_fraction": 0.95 if seed != 3 else 0.5, "lost": 0})
    case_of(monkeypatch, "fair", lambda _: {"used_fraction": 0.95, "lost": 0})
    done = CliRunner().invoke(check_benches.main, ["fair", "loss"])
    assert done.exit_code == 1
    assert "loss: seeds 1 to 5: used_fraction 0.5 (>= 0.9)" in done.output
    missed = [line for line in done.output.splitlines() if line.startswith("missed")]
    assert missed == ["missed: loss seed 3: used_fraction 0.5, wanted >= 0.9; repeat with: scripts/bench loss --seed 3"]


def test_main__a_known_miss_is_printed_and_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_benches, "KNOWN_MISSES", {("loss", "used_fraction"): None})
    case_of(monkeypatch, "loss", lambda seed: {"used_fraction": 0.5, "lost": seed == 3})
    done = CliRunner().invoke(check_benches.main, ["loss"])
    assert done.exit_code == 1
    assert "loss: seeds 1 to 5: used_fraction 0.5 (>= 0.9, missed), lost 1 (<= 0)" in done.output
    missed = [line for line in done.output.splitlines() if line.startswith("missed")]
    assert missed == ["missed: loss seed 3: lost 1, wanted <= 0; repeat with: scripts/bench loss --seed 3"]


def test_main__a_known_miss_that_is_worse_than_it_was_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_benches, "KNOWN_MISSES", {("loss", "used_fraction"): 0.8})
    case_of(monkeypatch, "loss", lambda seed: {"used_fraction": 0.79 if seed == 2 else 0.8, "lost": 0})
    done = CliRunner().invoke(check_benches.main, ["loss"])
    assert done.exit_code == 1
    missed = [line for line in done.output.splitlines() if line.startswith("missed")]
    assert missed == [
        "missed: loss seed 2: used_fraction 0.79, wanted >= 0.9; repeat with: scripts/bench loss --seed 2"
    ]


def test_main__what_takes_long_has_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    case_of(monkeypatch, "unequal", lambda seed: {"used_fraction": 1.0, "lost": seed - 1})
    done = CliRunner().invoke(check_benches.main, ["unequal"])
    assert (done.exit_code, done.output) == (0, "unequal: seeds 1 to 1: used_fraction 1 (>= 0.9), lost 0 (<= 0)\n")


def test_known_misses__are_requirements() -> None:
    for name, figure in check_benches.KNOWN_MISSES:
        assert figure in {wanted.figure for wanted in CASES[name].wanted}


def test_main__chaos_has_fresh_seeds_and_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for _ in range(2):
        monkeypatch.setattr(check_benches, "CHAOS_RUNS", 3)
        case_of(monkeypatch, "chaos", lambda _: {"used_fraction": 1.0, "lost": 1})
        done = CliRunner().invoke(check_benches.main, ["chaos"])
        assert done.exit_code == 1
        missed = [line for line in done.output.splitlines() if line.startswith("missed")]
        seeds = [int(line.rsplit(" ", 1)[1]) for line in missed]
        assert missed[0] == (
            f"missed: chaos seed {seeds[0]}: lost 1, wanted <= 0; repeat with: scripts/bench chaos --seed {seeds[0]}"
        )
        assert seeds == list(range(seeds[0], seeds[0] + 3))
        assert f"chaos: seeds {seeds[0]} to {seeds[2]}:" in done.output
        seen.append(seeds[0])
    assert seen[0] != seen[1]


def test_main__what_cannot_be_measured_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int) -> dict[str, float]:
        if seed == 1:
            raise BenchError("214 of 250 messages were delivered")
        if seed == 2:
            raise ZeroDivisionError("division by zero")
        return {"used_fraction": math.nan, "lost": 0}

    case_of(monkeypatch, "loss", broken)
    done = CliRunner().invoke(check_benches.main, ["loss"])
    assert done.exit_code == 1
    assert "loss seed 1: 214 of 250 messages were delivered; repeat" in done.output
    assert "loss seed 2: ZeroDivisionError: division by zero; repeat" in done.output
    assert "loss seed 3: used_fraction nan, wanted >= 0.9; repeat" in done.output


def test_main__unknown_case_is_wrong_usage() -> None:
    done = CliRunner().invoke(check_benches.main, ["clean"])
    assert done.exit_code == 2
    assert "'clean' is not one of" in done.output


def test_main__what_does_not_end_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_: int) -> dict[str, float]:
        signal.raise_signal(signal.SIGALRM)
        return {"used_fraction": 1.0, "lost": 0}

    case_of(monkeypatch, "loss", endless)
    done = CliRunner().invoke(check_benches.main, ["loss"])
    assert done.exit_code == 1
    assert "a run died, or took longer than 300 s" in done.output
