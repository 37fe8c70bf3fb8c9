"""The command `srd`."""

from __future__ import annotations

from functools import partial
from typing import Final

from netns.base.entry import start

EXTRA: Final = ("blake3", "click", "prometheus_client", "rich", "uvloop", "xxhash")
"""What the extra `cli` brings."""

main: Final = partial(start, "srd", "srd.cli:cli", extra="cli", libraries=EXTRA)
"""The entry point of the console script."""
