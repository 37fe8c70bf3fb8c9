#!/usr/bin/env python3
"""`make demo-governance`: two teams on one lab, one lends and takes back. See scripts/governance_demo.py."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from scripts.installed import start

    start("scripts/demo_governance.py")
    from scripts.governance_demo import main

    sys.exit(main())
