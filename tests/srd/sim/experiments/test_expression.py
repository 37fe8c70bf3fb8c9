"""srd.sim.experiments.expression: values by hand; what is no expression is said in one line."""

from __future__ import annotations

import pytest

from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.expression import Expression

FIGURES = {"a": 2.0, "b": 8.0, "loss_0.1pct": 0.5, "queue_20ms": 3.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", 2),
        ("a / b", 0.25),
        ("a + b * 2 - 1e-1", 17.9),
        ("(a + b) * 2", 20),
        ("-a", -2),
        ("loss_0.1pct * 4", 2),
        ("max(abs(a - b), queue_20ms, 1)", 6),
        ("min(a, b) <= 2", 1),
        ("a >= b", 0),
    ],
)
def test_value(text: str, value: float) -> None:
    assert Expression(text).value(FIGURES) == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    ["", "a b", "a <= b <= 3", "a ** b", "'a'", "a[0]", "a.real.b()", "open(a)", "min(a)", "abs(a, b)", "abs()",
     "max(key=a)", "lambda: a", "(a, b)", "a if b else a", "not a", "[a]", "(" * 10_000 + "a" + ")" * 10_000],
)  # fmt: skip
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(ExperimentError, match=r"is no expression; write it with numbers, names of figures, \+ - \*"):
        Expression(text)


def test_figures_that_are_missing_and_a_division_by_0() -> None:
    with pytest.raises(ExperimentError, match=r"^c is no figure; there are a, b, "):
        Expression("a / c").value(FIGURES)
    with pytest.raises(ExperimentError, match=r"^a / \(b - 8\): divides by 0$"):
        Expression("a / (b - 8)").value(FIGURES)
