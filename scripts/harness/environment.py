"""The environment of a measurement: machine, kernel, versions. Figures cannot be interpreted without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from netns.observe.machine import first_line
from srd.compare import runner

_ROOT: Final = Path(__file__).resolve().parent.parent.parent


def environment() -> dict[str, Any]:
    return runner.environment() | {
        "revision": first_line("git", "-C", str(_ROOT), "describe", "--always", "--dirty"),
    }
