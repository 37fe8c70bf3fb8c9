"""scripts.benches.picture: an outcome is a picture, the same each time; anything else is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from scripts.benches.cases.latency import name_of
from scripts.benches.cases.sizes import SIZES
from scripts.benches.outcome import CaseOutcome, Round
from scripts.benches.picture import main
from scripts.benches.volume.measure import BINS_US, fraction_name

FIGURES = {
    "sizes": {f"p50_{name_of(size)}_us": 50.0 + size / 1000 for size in SIZES},
    "volume": {f"lossy_{fraction_name(bound_us)}": 1 / len(BINS_US) for bound_us in BINS_US},
}


def outcome(case: str) -> dict[str, Any]:
    figures = FIGURES[case]
    rounds = tuple(Round(number, figures, {"tcp": figures}) for number in range(3))
    return CaseOutcome(case, "veth", rounds, ()).to_dict()


def drawn(content: str, picture: Path) -> Result:
    return CliRunner().invoke(main, ["-", str(picture)], input=content)


@pytest.mark.parametrize("case", FIGURES)
def test_picture__draws_both_and_is_reproducible(tmp_path: Path, case: str) -> None:
    pictures = [tmp_path / name for name in ("one.svg", "two.svg")]
    for picture in pictures:
        result = drawn(json.dumps(outcome(case)), picture)
        assert result.exit_code == 0, result.output
    one, two = (picture.read_text() for picture in pictures)
    assert one == two
    assert "SRD" in one
    assert "TCP" in one


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"case": "sizes", "rounds": []}', json.dumps(outcome("sizes") | {"case": "latency"})],
)
def test_picture__of_something_else_is_one_line(tmp_path: Path, content: str) -> None:
    result = drawn(content, tmp_path / "picture.svg")
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
    assert not (tmp_path / "picture.svg").exists()


def test_picture__into_no_directory_is_one_line(tmp_path: Path) -> None:
    result = drawn(json.dumps(outcome("sizes")), tmp_path / "none" / "picture.svg")
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
