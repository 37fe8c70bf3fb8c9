"""report.html: one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from srd.compare import figures
from srd.compare.figures import Column
from srd.compare.grid import TRANSPORTS, Grid
from srd.compare.plots import CAPACITY, COLOURS, DASHES, panel_svgs, pictures
from srd.compare.summary import Summary
from srd.compare.traffic import File
from srd.compare.verdict import verdicts

_TEMPLATE: Final = Path(__file__).with_name("page.html.j2")


def render(grid: Grid, summaries: Sequence[Summary], *, report: Mapping[str, Any]) -> str:
    """Return the page."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        grid=grid,
        report=report,
        sections=[
            _section(grid, summaries, fabric=fabric, workload=workload)
            for fabric in grid.fabrics
            for workload in grid.workloads
        ],
        transports=TRANSPORTS,
        colours=COLOURS,
        capacity=CAPACITY,
        dashes={transport: _dash_array(transport) for transport in COLOURS},
        busiest=max((summary.loads.machine_busy or 0.0 for summary in summaries), default=0.0),
        verdicts=verdicts(grid, summaries),
        loads=figures.loads(summaries),
        sends_files=any(isinstance(traffic, File) for traffic in grid.workloads.values()),
        one_flow=any(figures.is_one_flow(grid, workload) for workload in grid.workloads),
        many_flows=not all(figures.is_one_flow(grid, workload) for workload in grid.workloads),
        sends_flows=any(not isinstance(traffic, File) for traffic in grid.workloads.values()),
        backends=sorted({summary.typical.backend for summary in summaries} - {""}),
    )


def _dash_array(transport: str) -> str:
    """Return a transport's dash pattern as SVG has it, for the key."""
    dashes = DASHES[transport]
    return "none" if dashes == "-" else " ".join(f"{2 * length:g}" for length in dashes[1])


def _section(grid: Grid, summaries: Sequence[Summary], *, fabric: str, workload: str) -> dict[str, Any]:
    """Return what the page shows of one workload on one fabric: plots, and a table under each."""
    own = [each for each in summaries if (each.point.fabric, each.point.workload) == (fabric, workload)]
    rate, *others = figures.results(grid, workload)
    several = [Column("least to most", 0, figures.spread)] if len(grid.seeds) >= figures.SEVERAL else []
    loads = [
        Column("cores", 0, figures.cores),
        Column("machine busy", 0, lambda summary: figures.percent(summary.loads.machine_busy)),
    ]
    tables = [rate, *several, *others], [*figures.troubles(grid, workload), *loads]
    return {
        "title": f"{workload} on {fabric}" if len(grid.fabrics) > 1 else workload,
        "what": figures.words(grid, workload),
        "parts": [
            {
                "picture": picture,
                # Matplotlib escapes the text that it draws
                "panels": [Markup(svg) for svg in panel_svgs(own, picture.draw, conditions=list(grid.conditions))],  # noqa: S704
                "heads": [column.head for column in columns],
                "rows": [_row(summary, columns, seeds=len(grid.seeds)) for summary in own],
            }
            for picture, columns in zip(pictures(grid, workload), tables, strict=True)
        ],
    }


def _row(summary: Summary, columns: Sequence[Column], *, seeds: int) -> dict[str, Any]:
    return {
        "point": summary.point,
        "figures": [column.text(summary) if summary.measured else "n/a" for column in columns],
        "path_shares": [(spine, share, figures.percent(share)) for spine, share in summary.path_shares.items()],
        "end": figures.end(summary, seeds=seeds),
        "note": summary.note,
        "is_ok": set(summary.states) == {"ok"},
    }
