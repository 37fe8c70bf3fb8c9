"""Grids of experiments, from YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.grid import ExperimentCell, read_grid


def written(directory: Path, text: str) -> Path:
    path = directory / "grid.yaml"
    path.write_text(text)
    return path


def test_every_combination(tmp_path: Path) -> None:
    (tmp_path / "cut.yaml").write_text("events: [{at: 1us, fail: spine1}]\n")
    text = (
        "topology: incast48\nworkload: [permutation, 'incast:2x1K']\npaths: [1, null]\nplan: [null, cut.yaml]\nseeds: 2"
    )
    grid = read_grid(written(tmp_path, f"{text}\nlimit: 20ms\n"))
    assert (grid.name, grid.limit_s, len(grid.cells)) == ("grid", 0.02, 16)
    assert grid.cells[0] == ExperimentCell("incast48", "permutation", None, "srd", None, 1, 1)
    assert grid.cells[-1] == ExperimentCell("incast48", "incast:2x1K", "cut.yaml", "srd", None, None, 2)
    experiments = grid.experiments()
    assert len({experiment.digest() for experiment in experiments.values()}) == 16
    last = experiments[grid.cells[-1]]
    assert (last.paths, last.seed, last.limit_s, len(last.flows), len(last.plan)) == (None, 2, 0.02, 2, 1)
    assert {cell.case.contestant for cell in grid.cells} == {"srd", "srd, 1 path"}
    assert grid.cells[-1].case.scene == "incast:2x1K on incast48, cut.yaml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topology: incast48", "workload: missing"),
        ("topology: incast48\nworkload: []", "workload: no value, or one twice"),
        ("topology: incast48\nworkload: permutation\nseeds: [1, 1]", "seeds: no value, or one twice"),
        ("topology: incast48\nworkload: permutation\ntransport: pigeon", "transport: 'pigeon' is none of "),
        ("topology: incast48\nworkload: permutation\nlimit: 5", "limit: 5 is not a time"),
        ("topology: incast48\nworkload: permutation\nseeds: 2000000", "2000000 cells; at most 1000000"),
        ("topology: incast48\nworkload: permutation\nspeed: 1", "speed: no such key"),
    ],
)
def test_what_is_wrong_with_it(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        read_grid(written(tmp_path, text))
    assert str(caught.value).startswith(f"{tmp_path}/grid.yaml: {said}")


def test_what_is_wrong_with_an_experiment(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"^--workload incast:60x1: 60 senders and a receiver, but 60 hosts"):
        read_grid(written(tmp_path, "topology: incast48\nworkload: 'incast:60x1'\n")).experiments()
