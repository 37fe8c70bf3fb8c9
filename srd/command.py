"""The command `srd`, or which extra it lacks: the transport is installed without what command lines need."""

from __future__ import annotations

import sys
from typing import Final

from netns.base.standard_streams import open_closed

EXTRA: Final = ("blake3", "click", "prometheus_client", "rich", "uvloop", "xxhash")
"""What the extra `cli` brings."""


def main() -> None:
    """Run the command line; the entry point of the console script."""
    open_closed()
    try:
        from srd.cli import main as command  # noqa: PLC0415 - it may lack something

        command()
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        sys.exit(f"srd: needs {error.name}; install it: pip install 'open-srd[cli]'")
