"""Examples that come with the package: settings of cards, and a map of VPCs, found by name from any directory.

    nitro-card run card-a
    nitro-vpc check vpc

A file of the user's goes first. `vpc-card-a`, `express-card-a` and their other ends name keys beside them: copy them to
where the keys are.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from netns.base.files import file_or_example

DIRECTORY: Final = Path(__file__).parent
NAMES: Final = tuple(sorted(path.stem for path in DIRECTORY.glob("*.yaml")))

file_named: Final = partial(file_or_example, examples=DIRECTORY)
"""The file of that name, or the example."""
