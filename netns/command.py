"""The command `srd-lab`."""

from __future__ import annotations

from functools import partial
from typing import Final

from netns.base.entry import start

EXTRA: Final = ("click", "prometheus_client", "pydantic", "pyroute2", "rich", "yaml")
"""What the extra `lab` brings."""

main: Final = partial(start, "srd-lab", "netns.cli:main", extra="lab", libraries=EXTRA)
"""The entry point of the console script."""
