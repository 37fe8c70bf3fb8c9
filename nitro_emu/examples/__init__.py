"""Examples that come with the package: settings of cards, and a map of VPCs, found by name from any directory.

    nitro-card run card-a
    nitro-vpc check vpc

A file of the user's goes first. `vpc-card-a`, `express-card-a` and their other ends name keys beside them: copy them to
where the keys are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).parent
NAMES: Final = tuple(sorted(path.stem for path in DIRECTORY.glob("*.yaml")))


def file_named(name: str | Path) -> Path:
    """Return the file `name`, or the example of that name if there is no such file; the file is not read."""
    path = Path(name)
    if str(name) in NAMES and not path.exists():
        return DIRECTORY / f"{name}.yaml"
    return path
