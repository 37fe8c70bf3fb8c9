"""Options that several commands of `srd-lab` have, and the types of durations and sizes."""

from __future__ import annotations

from typing import Final

import click

from netns.base.units import UnitError, parse_duration_us, parse_size

LAB_OPTION: Final = click.option("--lab", "name", metavar="NAME", help="The lab; optional if only one is up.")


class Duration(click.ParamType[float]):
    """A duration such as 500ms or 2s, as seconds."""

    name = "duration"

    def __init__(self, *, least_s: float = 0, most_s: float) -> None:
        self._least_s, self._most_s = least_s, most_s

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a duration; a number is one already, in seconds, as defaults are."""
        if isinstance(value, float):
            return value
        try:
            seconds = parse_duration_us(value) / 1e6
        except UnitError as error:
            self.fail(str(error), param, ctx)
        if seconds < self._least_s:
            self.fail(f"{value} is too short; at least {self._least_s:.10g} s", param, ctx)
        if seconds > self._most_s:
            self.fail(f"{value} is too long; at most {self._most_s:.10g} s", param, ctx)
        return seconds


class Size(click.ParamType[int]):
    """A size such as 512M or 1.5G, as bytes."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse a size."""
        try:
            return parse_size(value)
        except UnitError as error:
            self.fail(str(error), param, ctx)
