#!/usr/bin/env python3
"""Fail when branch coverage of the pure parts falls below the floor. Reads the .coverage file of the last test run."""

from __future__ import annotations

import io
import sys

import coverage

FLOOR_PERCENT = 95.0
PURE = (
    "srd/proto/**",
    "srd/secure/*",
    "netns/base/units.py",
    "netns/base/token_bucket.py",
    "devmem/*",
    "netns/netem/*",
    "netns/topology/model.py",
    "netns/topology/dumbbell.py",
    "netns/lab/plan.py",
    "netns/faults/schedule.py",
    "netns/backends/kernel/netem_options.py",
    "netns/backends/virtual/*",
    "netns/placement/*",
    "netns/governance/*",
)


def main() -> int:
    """Print one line per pure part; return 1 if one is below the floor."""
    data = coverage.Coverage()
    data.load()
    status = 0
    for pattern in PURE:
        try:
            percent = data.report(include=[pattern], file=io.StringIO())
        except coverage.exceptions.NoDataError:
            print(f"coverage: {pattern}: no data; run make test", file=sys.stderr)
            return 1
        print(f"coverage: {pattern}: {percent:.1f} % of lines and branches (floor {FLOOR_PERCENT:.0f} %)")
        if percent < FLOOR_PERCENT:
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
