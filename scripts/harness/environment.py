"""The environment of a measurement: machine, kernel, versions. Figures cannot be interpreted without it."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Final

from netns.base.build import BUILD
from netns.observe.machine import first_line, machine

_ROOT: Final = Path(__file__).resolve().parent.parent.parent


def environment() -> dict[str, str | int]:
    """Return a description of this machine, for report.json."""
    return {
        **machine(),
        "open-srd": f"{_version('open-srd')} {BUILD}",
        "revision": first_line("git", "-C", str(_ROOT), "describe", "--always", "--dirty"),
        "numpy": _version("numpy"),
        "uvloop": _version("uvloop"),
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
