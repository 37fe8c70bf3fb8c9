"""The version, and whether this is compiled (see setup.py): what every command says with --version.

All that is compiled is compiled together, so one module's file shows it.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

_SHOWS: Final = Path(__file__).resolve().parents[1] / "netem" / "queue"
"""A module that setup.py compiles, without its suffix."""

BUILD: Final = (
    "compiled" if any(_SHOWS.with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES) else "interpreted"
)
"""The build, for --version and reports; benchmarks of the two are not comparable."""
_COST: Final = {"compiled": "", "interpreted": " (1.2 to 2 times slower than compiled)"}


def version_text() -> str:
    """Return the version and the build; of a checkout that is not installed, the build alone."""
    try:
        number = version("open-srd")
    except PackageNotFoundError:
        number = "not installed"
    return f"{number}, {BUILD}{_COST[BUILD]}"
