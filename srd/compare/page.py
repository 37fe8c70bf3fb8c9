"""report.html: one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from srd.compare import figures
from srd.compare.grid import TRANSPORTS, Grid
from srd.compare.plots import COLOURS, panel_svg, panels
from srd.compare.summary import Summary, checks
from srd.compare.traffic import File

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
        busiest=max((summary.loads.machine_busy or 0.0 for summary in summaries), default=0.0),
        headlines=figures.headlines(grid, summaries),
        loads=figures.loads(summaries),
        checks=checks(grid.wanted, summaries),
        sends_files=any(isinstance(traffic, File) for traffic in grid.workloads.values()),
        one_flow=any(figures.is_one_flow(grid, workload) for workload in grid.workloads),
        many_flows=not all(figures.is_one_flow(grid, workload) for workload in grid.workloads),
        sends_flows=any(not isinstance(traffic, File) for traffic in grid.workloads.values()),
        backends=sorted({summary.typical.backend for summary in summaries} - {""}),
    )


def _section(grid: Grid, summaries: Sequence[Summary], *, fabric: str, workload: str) -> dict[str, Any]:
    """Return what the page shows of one workload on one fabric."""
    own = [each for each in summaries if (each.point.fabric, each.point.workload) == (fabric, workload)]
    columns = figures.columns(grid, workload)
    return {
        "title": f"{workload} on {fabric}" if len(grid.fabrics) > 1 else workload,
        "what": figures.words(grid, workload),
        "heads": [column.head for column in columns],
        "rows": [
            {
                "point": summary.point,
                "figures": [column.text(summary) if summary.measured else "n/a" for column in columns],
                "path_shares": [(spine, share, figures.percent(share)) for spine, share in summary.path_shares.items()],
                "end": figures.end(summary, seeds=len(grid.seeds)),
                "note": summary.note,
                "busy": figures.percent(summary.loads.machine_busy),
                "is_ok": set(summary.states) == {"ok"},
            }
            for summary in own
        ],
        "plots": [
            # Matplotlib escapes the text that it draws
            (caption, Markup(panel_svg(own, draw, conditions=list(grid.conditions))))  # noqa: S704
            for caption, draw in panels(grid, workload).values()
        ],
    }
