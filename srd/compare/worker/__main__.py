"""`python -m srd.compare.worker`; see the package's docstring."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from netns.base import event_loop
from srd.compare.worker.arrivals import Copy
from srd.compare.worker.host import TRANSPORTS, Worker


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m srd.compare.worker")
    parser.add_argument("--transport", choices=TRANSPORTS, required=True)
    parser.add_argument("--listen", metavar="ADDRESS", required=True)
    parser.add_argument("--bind", metavar="ADDRESS")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--into", metavar="DIRECTORY", type=Path)
    parser.add_argument("--sha256", metavar="HEX")
    given = parser.parse_args()
    copy = None if given.file is None else Copy(given.file, given.into, given.sha256)
    return event_loop.run(Worker(given.transport, given.listen, given.bind, copy).run())


if __name__ == "__main__":
    sys.exit(main())
