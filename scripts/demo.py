#!/usr/bin/env python3
"""`make demo`: a file crosses a lossy four-path fabric by SRD and by kernel TCP. See scripts/compare/."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from scripts.installed import start

    start("scripts/demo.py")
    from scripts.compare.cli import run

    sys.exit(run())
