"""`srd sim roce` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scripts.benches import roce_tuning
from srd.sim.experiments.cli import sim
from srd.sim.roce import picture, suite
from srd.sim.roce.fabrics import tree
from srd.sim.roce.picture import Panel
from srd.sim.roce.play import CONTENDERS, Contender
from srd.sim.roce.suite import ROWS, SCENARIOS, SHOWN

ALL = ("--scenario", "idle")


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(sim, ["roce", *arguments])


def test_one_scenario__by_every_transport() -> None:
    done = ran(*ALL)
    assert done.exit_code == 0, done.output
    heading, *rows = done.output.splitlines()[: 1 + 2 * len(CONTENDERS)]
    assert heading.split() == ["transport", "time_us"]
    labels = [label for each in CONTENDERS.values() for label in (each.label, "searched")]
    assert [row.rsplit(maxsplit=1)[0].strip() for row in rows] == labels


def test_rows__the_searched_settings_are_of_the_search() -> None:
    """Each is one of the grid, by the numbers that its classes have."""
    for name in CONTENDERS:
        searched = [_numbers(each) for each in roce_tuning.grid(name).values()]
        assert _numbers(ROWS[f"{name}-searched"]) in searched
        assert _numbers(ROWS[name]) == searched[0]  # the published one


def _numbers(contender: Contender) -> list[object]:
    topology = tree(leaves=2, hosts_per_leaf=1, spines=1, seed=1)
    transport = contender.transport
    settings = {
        name: value for name in dir(transport) if name[0] != "_" and not callable(value := getattr(transport, name))
    }
    return [contender.switches.switches(topology), contender.config, str(settings)]


def test_json__is_what_the_scenario_returns_and_a_flow_that_never_ends_is_null() -> None:
    done = ran("--scenario", "ring-deadlock", "--transport", "roce", "--seed", "3", "-J")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert found["seed"] == 3
    figures = SCENARIOS["ring-deadlock"].play(CONTENDERS["roce"], seed=3)
    assert figures["deadlock"] == 1
    assert found["scenarios"]["ring-deadlock"]["roce"] == figures | {"max_us": None}


def test_without_a_scenario__the_table_has_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    figures = {column.figure: 1.0 for entry in SCENARIOS.values() for column in entry.columns}

    def run(names: tuple[str, ...], transports: tuple[str, ...], **_: object) -> suite.Results:
        asked.append(names)
        return {name: dict.fromkeys(transports, figures) for name in names}

    monkeypatch.setattr(suite, "run", run)
    done = ran()
    assert done.exit_code == 0, done.output
    assert asked == [SHOWN]
    heading = done.output.splitlines()[0]
    assert all(column.heading in heading for entry in SCENARIOS.values() for column in entry.columns)


def test_plot__of_one_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(picture.PANELS, "idle", lambda *, seed: Panel("idle", "ms", "", {"srd": [(seed, 1.0)]}))
    done = ran(*ALL, "--plot", str(tmp_path / "x.png"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    done = ran(*ALL, "--plot", str(tmp_path / "no" / "x.png"))
    assert (done.exit_code, done.output.splitlines()[-1][:15]) == (1, "Error: --plot /")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--workload", "incast:3x1K"), "--workload: roce has its own; leave it out"),
        (("--paths", "3"), "--paths: roce has its own"),
        (("--scenario", "idle", "--plot", "x.png"), "--plot: idle has no picture; there are those of"),
        (("--plot", "x.png", "--transport", "irn"), "--plot shows all transports"),
        (("--scenario", "nothing"), "'nothing' is not one of"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], says: str) -> None:
    done = ran(*arguments)
    assert done.exit_code == 2, done.output
    assert says in done.output


def test_scenario__is_of_roce_only() -> None:
    done = CliRunner().invoke(sim, ["incast48", "--scenario", "idle"])
    assert done.exit_code == 2
    assert "srd sim roce --scenario idle" in done.output
