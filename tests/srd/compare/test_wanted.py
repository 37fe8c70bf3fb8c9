"""What a grid wants of its figures."""

from __future__ import annotations

from dataclasses import replace

from srd.compare.grid import WantedFigure
from srd.compare.outcome import CellOutcome, CellState
from srd.compare.summary import checks, incomplete, summarize
from tests.srd.compare.cases import FILE_GRID, outcomes

OUTCOMES = outcomes(FILE_GRID)
SUMMARIES = summarize(FILE_GRID, OUTCOMES)


def test_checks__of_what_took_part() -> None:
    found = checks(FILE_GRID.wanted, SUMMARIES)
    assert [(check.point.condition, check.wanted.figure, check.value, check.met) for check in found] == [
        ("clean", "goodput", 1.0, False),
        ("clean", "sent_again", 0.01, False),
        ("dead", "goodput", 2.5, True),
    ]


def test_checks__the_bound_itself_is_met() -> None:
    assert [check.met for check in checks([WantedFigure("srd", "sent_again", most=0.01)], SUMMARIES)] == [True, True]
    assert [check.met for check in checks([WantedFigure("srd", "goodput", over="cubic", least=1.0)], SUMMARIES)] == [
        True
    ] * 2


def test_checks__what_is_not_known_is_not_checked() -> None:
    assert checks([WantedFigure("srd", "goodput", over="bbr", least=1.0)], SUMMARIES) == []
    assert checks([WantedFigure("bbr", "sent_again", most=1.0)], SUMMARIES) == []
    without = [summary for summary in SUMMARIES if summary.point.transport != "cubic"]
    assert checks([WantedFigure("srd", "goodput", over="cubic", least=1.0)], without) == []


def test_incomplete__every_cell_must_be_ok() -> None:
    assert incomplete(("srd",), SUMMARIES) == []
    assert [str(point) for point in incomplete(("srd", "cubic"), SUMMARIES)] == ["two, dead, file: cubic"]
    lost = OUTCOMES | {cell: CellOutcome(CellState.FAILED, "boom") for cell in OUTCOMES if str(cell).endswith("srd")}
    assert len(incomplete(("srd",), summarize(FILE_GRID, lost))) == 2
    assert incomplete(("srd",), [replace(SUMMARIES[0], states={"ok": 1, "timeout": 1})])
