"""What `srd sim roce` does: plays scenarios, and prints or draws what came of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from netns.base.files import write_whole
from netns.base.output import print_json
from netns.base.progress import Progress
from netns.base.tables import console, print_table
from srd.sim.errors import SimulationError
from srd.sim.roce import suite
from srd.sim.roce.scenarios import Figures


def play(scenario: str | None, *, transport: str | None, seed: int, plot: Path | None, as_json: bool) -> None:
    """Play one scenario, or those of the table; by one transport, or by all, with both settings of each.

    Raises ClickException.
    """
    names = suite.SHOWN if scenario is None else (scenario,)
    rows = tuple(suite.ROWS) if transport is None else (transport, f"{transport}-searched")
    if plot is not None and transport is not None:
        raise click.UsageError("--plot shows all transports; leave --transport out")
    try:
        with Progress("srd sim roce", ["all"], is_plain=False) as progress:
            progress.at("drawing")
            picture = None if plot is None else _picture(scenario, seed=seed, plot=plot)
            found = suite.run(names, rows, seed=seed, begins=lambda name, by: progress.at(f"{name}: {by}"))
        if plot is not None and picture is not None:
            with plotting(plot):
                write_whole(plot, picture)
    except SimulationError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        print_json({"seed": seed, "scenarios": {name: _plain(each) for name, each in found.items()}})
        return
    print_table(suite.summary(found) if scenario is None else suite.details(found[scenario]))
    console().print(f"\nseed {seed}; what it means: docs/roce.md" + (f"; picture: {plot}" if plot else ""))


def _plain(figures: dict[str, Figures]) -> dict[str, dict[str, float | None]]:
    """Return figures for JSON; None where a flow did not end."""
    return {
        transport: {name: value if math.isfinite(value) else None for name, value in each.items()}
        for transport, each in figures.items()
    }


def _picture(scenario: str | None, *, seed: int, plot: Path) -> bytes:
    """Return the panel of a scenario, or all."""
    with plotting(plot):
        from srd.sim.roce.picture import PANELS, draw  # noqa: PLC0415 - an extra, and half a second

        if scenario is not None and scenario not in PANELS:
            raise click.UsageError(f"--plot: {scenario} has no picture; there are those of {', '.join(PANELS)}")
        return draw([panel(seed=seed) for name, panel in PANELS.items() if scenario in (None, name)])


@contextmanager
def plotting(plot: Path) -> Iterator[None]:
    """Say what to do where a picture cannot be drawn or written. Raises SimulationError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise SimulationError(
            f"--plot needs {error.name}; install it, in the checkout: pip install '.[report]'"
        ) from None
    except OSError as error:
        raise SimulationError(f"--plot {plot}: {error.strerror}; choose another place") from error
