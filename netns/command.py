"""The command `srd-lab`, or which extra it lacks: the transport is installed without what command lines need."""

from __future__ import annotations

import sys
from typing import Final

from netns.base.standard_streams import open_closed

EXTRA: Final = ("click", "prometheus_client", "pydantic", "pyroute2", "rich", "yaml")
"""What the extra `lab` brings."""


def main() -> None:
    """Run the command line; the entry point of the console script."""
    open_closed()
    try:
        from netns.cli import main as command  # noqa: PLC0415 - it may lack something

        command(prog_name="srd-lab")  # imports what a command needs when it is used
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        sys.exit(f"srd-lab: needs {error.name}; install it: pip install 'open-srd[lab]'")
