"""Examples that come with the package: topologies and jobs, which `srd-lab` finds by name from any directory.

    srd-lab run allreduce --topology cluster

A file of the user's goes first: `cluster` in the working directory is that file. An example's command may use what is
installed beside it (`python3 -m srd.examples.allreduce`): see netns/launcher.py.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from netns.base.files import file_or_example

DIRECTORY: Final = Path(__file__).parent

file_named: Final = partial(file_or_example, examples=DIRECTORY)
"""The file of that name, or the example."""
