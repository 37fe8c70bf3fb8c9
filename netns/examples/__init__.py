"""Examples that come with the package: topologies and jobs, which `srd-lab` finds by name from any directory.

    srd-lab run allreduce --topology cluster

A file of the user's goes first: `cluster` in the working directory is that file. An example's command may use what is
installed beside it (`python3 -m srd.examples.allreduce`): see netns/launcher.py.
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
