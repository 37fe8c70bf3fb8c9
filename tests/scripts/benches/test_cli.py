"""scripts.benches.cli: exit statuses, one JSON object at the end, errors in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scripts.benches import campaign, cli, owners, registry
from scripts.benches.case import Case, CaseOptions
from scripts.benches.outcome import Round, Wanted
from scripts.benches.owners import OWNERS
from scripts.benches.registry import CASES
from scripts.benches.scenarios import SEEDS, scenario
from scripts.harness.errors import BenchError
from scripts.harness.needs import EVERYTHING, Need, lacks_library
from scripts.harness.steps import heard_by, step
from tests.terminal import Terminal

ROOT = Path(__file__).resolve().parents[3]


def call(monkeypatch: pytest.MonkeyPatch, case: Case, *arguments: str) -> Result:
    monkeypatch.setitem(CASES, "loss", case)
    return CliRunner().invoke(cli.main, ["loss", *arguments])


@pytest.fixture(autouse=True)
def _past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the time left of real benches not be that of the ones here."""
    monkeypatch.setattr(cli, "PAST", tmp_path / "bench-seconds.json")


def fake(request: CaseOptions) -> Iterator[Round]:
    for seed in SEEDS if request.seed is None else (request.seed,):
        yield Round(seed, {"figure_ratio": seed + (request.seconds or 0.5)})


FAKE = replace(CASES["loss"], measure=fake, wanted=(Wanted("figure_ratio", "<=", 3),))
SEED_3 = ("--seed", "3")


def test_json__one_object_on_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    result = call(monkeypatch, FAKE, "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert [each["seed"] for each in document["rounds"]] == list(SEEDS)
    assert document["checks"] == {"figure_ratio": {"value": 5.5, "wanted": "<= 3"}}
    assert "missed" in result.stderr


def test_seed_and_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    result = call(monkeypatch, FAKE, "--json", "--seed", "2", "--seconds", "0.25")
    assert json.loads(result.stdout)["rounds"] == [{"seed": 2, "ours": {"figure_ratio": 2.25}, "peers": {}}]


def test_table__for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    result = call(monkeypatch, FAKE, "--seed", "1")
    assert result.exit_code == 0
    assert "figure_ratio 1.5, wanted <= 3: met" in result.stdout


NEEDS = (Need("ip", ("none_*",)), Need("no-such-tool", ("other_*", "third")))


def test_missing__one_line_and_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(FAKE, needs=NEEDS, wanted=(*FAKE.wanted, Wanted("other_ratio", ">=", 1)))
    result = call(monkeypatch, case, "--json", "--seed", "1")
    assert result.exit_code == 0, result.output
    reason = "no-such-tool: no such command; install the package that has it, or give its path"
    assert f"scripts/bench loss: {reason}; not measured: other_*, third\n" in result.stderr
    assert f"other_ratio, wanted >= 1: not measured ({reason})\n" in result.stderr
    document = json.loads(result.stdout)
    assert list(document["checks"]) == ["figure_ratio"]
    assert document["missing"] == [{"reason": reason, "figures": ["other_*", "third"]}]


def test_missing__all_that_a_case_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(FAKE, needs=(*NEEDS, Need("no_such_library", EVERYTHING, lacks_library)))
    result = call(monkeypatch, case)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        "scripts/bench loss: no_such_library: not installed; install it, in the checkout: pip install '.[bench]'; "
        "without it there is nothing to measure"
    )


def test_missed__is_printed_with_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "figure_ratio 3.5, wanted <= 3: missed, and no issue owns it\n" in call(monkeypatch, FAKE, *SEED_3).stdout
    monkeypatch.setattr(owners, "OWNERS", {"Faster": {"loss": ("figure_ratio",)}})
    assert "figure_ratio 3.5, wanted <= 3: missed; owner: Faster\n" in call(monkeypatch, FAKE, *SEED_3).stdout


def test_owners__of_bounds_on_real_hosts() -> None:
    """In virtual time scripts/check_benches.py fails where one is missed, whoever owns it."""
    owned = [(name, figure) for cases in OWNERS.values() for name, figures in cases.items() for figure in figures]
    bounds = {(name, each.figure) for name, case in CASES.items() for each in case.wanted if case.fabric != "virtual"}
    assert set(owned) <= bounds
    assert len(set(owned)) == len(owned)


def test_cannot_measure__exit_1_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_seed: int, _seconds: float) -> Round:
        raise BenchError("no valid measurement")

    result = call(monkeypatch, scenario("loss", "", fail))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.strip() == "scripts/bench loss: seed 1: no valid measurement"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "'nonsense' is not one of 'incast'"),
        ([], "Missing argument 'CASE'"),
        (["incast", "--seconds", "1"], "--seconds: incast lasts as long as its messages take"),
        (["loss", "--runs", "3"], "--runs: loss makes one round for each seed"),
        (["chaos", "--runs", "0"], "0 is not in the range x>=1"),
        (["loss", "--seconds", "0"], "0.0 is not in the range x>0"),
        (["clean", "--seed", "1"], "--seed: clean draws no random numbers"),
        (["peers", "--seconds", "1"], "--seconds: peers lasts as long as its messages take"),
        (["clean", "--directory", tempfile.gettempdir()], "--directory: clean stores no files"),
        (["file", "--directory", "/nowhere"], "Directory '/nowhere' does not exist"),
        (["loss", "--seed", "-1"], "-1 is not in the range"),
    ],
)
def test_bad_flow(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli.main, arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_script__finds_the_project_from_anywhere(tmp_path: Path) -> None:
    """With another Python than the project's: the script starts itself again with the right one."""
    done = subprocess.run(
        [Path(sys.base_prefix) / "bin" / "python3", ROOT / "scripts" / "bench", "virtual", "--seed", "1", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    document = json.loads(done.stdout)
    assert document["ours"]["packet_hops"] > 0
    assert list(document["checks"]) == [each.figure for each in CASES["virtual"].wanted]


@pytest.mark.parametrize("ending", [None, signal.SIGTERM])
@pytest.mark.parametrize("home", ["/of/the/user", None])
def test_keys__of_a_bench_are_removed_at_its_end(
    monkeypatch: pytest.MonkeyPatch, *, home: str | None, ending: signal.Signals | None
) -> None:
    homes: list[Path] = []

    def measure(_: CaseOptions) -> Iterator[Round]:
        homes.append(Path(os.environ["SRD_HOME"]))
        assert homes[0].is_dir()
        if ending is not None:
            signal.raise_signal(ending)
        yield Round(1, {"figure_ratio": 1.0})

    if home is None:
        monkeypatch.delenv("SRD_HOME", raising=False)
    else:
        monkeypatch.setenv("SRD_HOME", home)
    result = call(monkeypatch, replace(CASES["loss"], measure=measure, wanted=()))
    assert result.exit_code == (0 if ending is None else 128 + ending), result.output
    assert not homes[0].exists()
    assert os.environ.get("SRD_HOME") == home


def test_progress__on_a_terminal_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with Terminal() as terminal:

        def measure(request: CaseOptions) -> Iterator[Round]:
            rounds = fake(request)
            terminal.wait_for("] loss: 0 of 5, 10:00 left")
            yield next(rounds)
            terminal.wait_for("] loss: 1 of 5, 0:0")
            step("the links are built", fraction=0.5)
            terminal.wait_for(" left: the links are built")
            yield from rounds

        cli.PAST.write_text(json.dumps({"loss": 120}))
        monkeypatch.setitem(CASES, "loss", replace(FAKE, measure=measure))
        monkeypatch.setattr(sys, "stderr", terminal.stream)
        cli.main(["loss"], standalone_mode=False)
        assert "5 of 5" in terminal.text
        assert json.loads(cli.PAST.read_text())["loss"] < 120


class Hosts:
    """A case on real sockets that measures nothing."""

    WANTED: tuple[Wanted, ...] = ()
    NEEDS: tuple[Need, ...] = ()
    SECONDS = 1.0

    def measure(self, number: int, _seconds: float, /) -> Round:
        return Round(number, {})


@pytest.mark.parametrize("request_", [CaseOptions(), CaseOptions(seed=7), CaseOptions(runs=2)], ids=str)
@pytest.mark.parametrize(
    "case",
    [
        scenario("x", "", lambda seed, _: Round(seed, {})),
        registry._seeded("x", "", "", lambda seed: Round(seed, {}), (), rounds=3),
        registry._hosts("x", "", Hosts()),
    ],
    ids=["virtual", "seeded", "hosts"],
)
def test_planned__as_many_rounds_as_are_made(case: Case, request_: CaseOptions) -> None:
    assert case.planned(request_) == len(list(case.rounds(request_)))


def test_steps__are_heard_in_the_block_only() -> None:
    heard: list[tuple[str, float | None]] = []
    with heard_by(lambda what, fraction: heard.append((what, fraction))):
        assert list(campaign.seeds(7, runs=2)) == [7, 8]
        step("late", fraction=1.2)
    step("later")
    assert heard == [("seed 7", 0.0), ("seed 8", 0.5), ("late", 1.0)]


def test_seeds__until_the_time_is_up_and_at_least_one() -> None:
    assert list(campaign.seeds(7, runs=None, seconds=0.0)) == [7]
    assert [seed for seed, _ in zip(campaign.seeds(7, runs=None, seconds=60.0), range(3), strict=False)] == [7, 8, 9]


def test_complain__some_of_each_kind_and_how_to_repeat_them(capsys: pytest.CaptureFixture[str]) -> None:
    campaign.complain([], command="torture --seed 7")
    assert not capsys.readouterr().err
    campaign.complain([("hang", f"{number}") for number in range(7)] + [("leak", "x")], command="torture --seed 7")
    head, *lines = capsys.readouterr().err.splitlines()
    assert head == "faults; replay with: scripts/bench torture --seed 7"
    assert lines == [*(f"    hang: {number}" for number in range(5)), "    leak: x", "    hang: 2 more"]
