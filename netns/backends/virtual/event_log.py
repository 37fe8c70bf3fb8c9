"""The event log of the virtual backend: JSON lines, one object for each event of a packet at a virtual link.

The same run writes the same bytes, so that two logs can be compared with cmp(1).
"""

from __future__ import annotations

import json
from typing import TextIO

from netns.backends.virtual.virtual_link import PacketEvent


class JsonLines:
    """Write records to `file`; pass it to `VirtualFabric` as `observe`."""

    __slots__ = ("_file",)

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, record: PacketEvent) -> None:
        """Write one line: the fields of `PacketEvent` by name."""
        self._file.write(json.dumps(record._asdict(), separators=(",", ":")) + "\n")
