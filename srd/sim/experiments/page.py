"""The report of a sweep: one self-contained page, the same for the same results."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

import jinja2

from srd.sim.experiments.grid import ExperimentCell, ExperimentGrid
from srd.sim.experiments.plots import scene
from srd.sim.experiments.sweep import DataSet

COLUMNS: Final = (
    ("flows_complete", "complete"),
    ("fct_p50_us", "median, us"),
    ("fct_p99_us", "p99, us"),
    ("fct_max_us", "last, us"),
    ("slowdown_p50_ratio", "slowdown"),
    ("slowdown_p99_ratio", "p99"),
    ("last_over_ideal_ratio", "end over ideal"),
    ("packets_lost", "lost"),
    ("packets_resent", "sent again"),
)
"""Figures in tables, and their headings."""
_TEMPLATE: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ name }}</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
td, th { padding: .15rem .8rem; text-align: right } td:first-child, th:first-child { text-align: left }
img { max-width: 100% }
</style></head><body>
<h1>{{ name }}</h1>
<p>{{ cells }} experiments in virtual time. A figure is the median of its seeds ({{ seeds }}); complete flows are the
fewest of them. The slowdown of a flow is its completion time over what an empty fabric takes at least.</p>
{% for title, picture, rows in scenes %}
<h2>{{ title }}</h2>
<img alt="slowdowns" src="data:image/png;base64,{{ picture }}">
<table><tr><th></th>{% for _, heading in columns %}<th>{{ heading }}</th>{% endfor %}</tr>
{% for contestant, figures in rows %}
<tr><td>{{ contestant }}</td>{% for figure in figures %}<td>{{ figure }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% endfor %}
</body></html>
"""


def summaries(data: DataSet, cells: Sequence[ExperimentCell]) -> dict[ExperimentCell, dict[str, float]]:
    """Return the figures of each case: the median of its seeds that have one, and the least of complete flows."""
    found: dict[ExperimentCell, list[dict[str, float]]] = defaultdict(list)
    for cell in cells:
        found[cell.case].append(data.figures(cell))
    return {case: _summary(each) for case, each in found.items()}


def _summary(each: Sequence[dict[str, float]]) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for figures in each:
        for name, value in figures.items():
            values[name].append(value)
    return {name: median(all_of) for name, all_of in values.items()} | {"flows_complete": min(values["flows_complete"])}


def render(data: DataSet, grid: ExperimentGrid, cells: Sequence[ExperimentCell]) -> str:
    """Return the page of these cells, which all have a result."""
    scenes: dict[str, list[ExperimentCell]] = defaultdict(list)
    slowdowns: dict[ExperimentCell, list[Any]] = defaultdict(list)
    found = summaries(data, cells)
    for case in found:
        scenes[case.scene].append(case)
    for cell in cells:
        slowdowns[cell.case] += data.column(cell, "slowdown")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(_TEMPLATE).render(
        name=grid.name,
        cells=len(cells),
        seeds=len({cell.seed for cell in cells}),
        columns=COLUMNS,
        scenes=[
            (
                title,
                base64.b64encode(scene({case.contestant: slowdowns[case] for case in cases}, title=title)).decode(),
                [(case.contestant, [text(found[case].get(name)) for name, _ in COLUMNS]) for case in cases],
            )
            for title, cases in scenes.items()
        ],
    )


def text(value: float | None) -> str:
    """Return a figure with three digits after the point if it is small."""
    if value is None:
        return "-"
    return (
        f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:,.3g}" if value < 1 else f"{value:,.2f}"
    )
