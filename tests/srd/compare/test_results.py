"""cells.jsonl: what is there, and what an interrupted run has left."""

from __future__ import annotations

from pathlib import Path

import pytest

from srd.compare.errors import ResultsError
from srd.compare.grid import Cell
from srd.compare.results import FILE, Results
from tests.srd.compare.cases import done, hung

CELL = Cell("two", 1, "clean", "bulk", "srd")


def test_results__are_found_again(tmp_path: Path) -> None:
    first = Results(tmp_path / "new" / "directory")
    assert first.get("a") is None
    first.add("a", CELL, done())
    first.add("b", CELL, hung())
    again = Results(tmp_path / "new" / "directory")
    assert (again.get("a"), again.get("b"), again.get("c")) == (done(), hung(), None)


def test_results__a_line_without_its_end_is_cut_off(tmp_path: Path) -> None:
    Results(tmp_path).add("a", CELL, done())
    file = tmp_path / FILE
    whole = file.read_bytes()
    file.write_bytes(whole + whole[: len(whole) // 2])
    again = Results(tmp_path)
    again.add("b", CELL, hung())
    assert file.read_bytes().startswith(whole)
    assert (Results(tmp_path).get("a"), Results(tmp_path).get("b")) == (done(), hung())


def test_results__anew(tmp_path: Path) -> None:
    Results(tmp_path).add("a", CELL, done())
    again = Results(tmp_path, anew=True)
    assert again.get("a") is None
    again.add("b", CELL, hung())
    assert (Results(tmp_path).get("a"), Results(tmp_path).get("b")) == (None, hung())


@pytest.mark.parametrize("line", ["nonsense", "{}", "[]", '{"digest": "a", "outcome": {"state": "odd"}}'])
def test_results__another_file_is_not_touched(tmp_path: Path, line: str) -> None:
    file = tmp_path / FILE
    file.write_text(line + "\n")
    with pytest.raises(ResultsError, match=r"cells\.jsonl: line 1 is no cell \(.*\); remove the file, or the line"):
        Results(tmp_path)
    assert file.read_text() == line + "\n"


def test_results__a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match="give another directory by --output"):
        Results(tmp_path / "file" / "below")
