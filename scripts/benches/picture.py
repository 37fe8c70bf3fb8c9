"""What pictures of an outcome share: a command line that reads the JSON of a bench and writes an SVG."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import matplotlib as mpl
from matplotlib.figure import Figure

S = TypeVar("S")
COLOURS: Final = {"SRD": "#0072b2", "TCP": "#d55e00"}


def picture_command(case: str, *, series_of: Callable[[Any], S], svg: Callable[[S], str]) -> click.Command:
    """Return the command OUTCOME PICTURE. `series_of` raises ValueError, KeyError or TypeError for another outcome."""

    @click.command(help=f"Draw OUTCOME, the JSON of `scripts/bench {case} --json` (-: stdin), into the file PICTURE.")
    @click.argument("outcome", type=click.File())
    @click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
    def draw(outcome: Any, picture: Path) -> None:
        try:
            series = series_of(json.load(outcome))
        except (ValueError, KeyError, TypeError) as error:
            raise click.ClickException(f"{outcome.name}: not the JSON of scripts/bench {case} ({error!r})") from None
        try:
            picture.write_text(svg(series))
        except OSError as error:
            raise click.ClickException(f"{picture}: {error.strerror}") from None

    return draw


def styled() -> AbstractContextManager[None]:
    """Return a context in which all pictures look alike, and a figure is the same SVG each time."""
    return mpl.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "open-srd", "font.family": "sans-serif", "font.size": 10}
    )


def svg_of(figure: Figure) -> str:
    """Return a figure as an SVG, in `styled`."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return drawn.getvalue()
