#!/usr/bin/env python3
"""`make demo`: a file crosses a lossy four-path fabric by SRD and by kernel TCP. See scripts/compare/."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing to clear up yet: no traceback while modules load
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # in place of scripts/: modules are named from the root
    from scripts.compare.cli import run

    sys.exit(run())
