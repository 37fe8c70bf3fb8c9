"""report.html: the report as one self-contained page, made from report.json's content alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup

from scripts.compare import contestants, figures, plots
from scripts.compare.screen import headlines, loads, remarks

_TEMPLATE: Final = Path(__file__).with_name("page.html.j2")


def render(report: Mapping[str, Any]) -> str:
    """Return the page."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        report=report,
        contestants=contestants.BY_KEY,
        figures=figures,
        zip=zip,
        remarks=remarks(report),
        # matplotlib escapes the text it draws; all of it is ours besides
        plots={key: Markup(plots.progress_svg(report, key)) for key in report["conditions"]},  # noqa: S704
        headlines=headlines(report),
        loads=loads(report),
    )
