"""What a case needs that is not this project's: programs of other packages, a library, a kernel.

A case declares its needs beside its bounds, each with the figures that cannot be had without it. scripts/benches/cli.py
says in one line each which are not met. The case leaves those parts out, where `lacks` gives a reason, and measures the
rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from netns.errors import BackendError
from netns.programs import tool

EVERYTHING: Final = ("*",)
"""The figures of a need without which a case has nothing to measure."""


def lacks(program: str) -> str | None:
    """Return that a program is not installed, and which package has it; None if it is."""
    try:
        tool(program)
    except BackendError as error:
        return str(error)
    return None


def lacks_library(name: str, *, extra: str = "bench") -> str | None:
    """Return that a Python library of an extra is not installed, and the remedy; None if it is."""
    return None if find_spec(name) else f"{name}: not installed; install it, in the checkout: pip install '.[{extra}]'"


@dataclass(frozen=True, slots=True)
class Need:
    name: str
    figures: tuple[str, ...]
    """What is not measured without it: names, or patterns of them (fnmatch)."""
    check: Callable[[str], str | None] = lacks
    """Returns for the name why the need is not met, with the remedy; None if it is met."""

    @property
    def unmet(self) -> str | None:
        """Why it is not met, in one line; None if it is."""
        return self.check(self.name)
