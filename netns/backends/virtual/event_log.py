"""A trace of the virtual backend as JSON lines: one object for each thing that happened to a packet at a lane.

The bytes are the same for the same run, so that two traces may be compared with cmp(1).
"""

from __future__ import annotations

import json
from typing import TextIO

from netns.backends.virtual.virtual_link import Record


class JsonLines:
    """Writes records to `file`; give it to `VirtualFabric` as `observe`."""

    __slots__ = ("_file",)

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, record: Record) -> None:
        """Write one line: the fields of `Record` by name."""
        self._file.write(json.dumps(record._asdict(), separators=(",", ":")) + "\n")
