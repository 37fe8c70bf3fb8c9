"""`python -m srd.workload`; see the package's docstring."""

from __future__ import annotations

import argparse
import json
import sys

import uvloop

from srd.workload.host import TRANSPORTS, Host, about


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m srd.workload")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--transport", choices=TRANSPORTS)
    parser.add_argument("--listen", metavar="ADDRESS")
    parser.add_argument("--bind", metavar="ADDRESS")
    given = parser.parse_args()
    if given.check:
        print(json.dumps(about()))
        return 0
    if given.transport is None or given.listen is None:
        parser.error("give --transport and --listen")
    return uvloop.run(Host(given.transport, given.listen, given.bind).run())


if __name__ == "__main__":
    sys.exit(main())
