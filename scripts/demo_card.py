#!/usr/bin/env python3
"""`make demo-card`: two emulated EFA cards on a lossy fabric, with two tenants each. See scripts/card_demo/."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from scripts.installed import start

    start("scripts/demo_card.py")
    from scripts.card_demo.run import main

    sys.exit(main())
