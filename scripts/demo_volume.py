#!/usr/bin/env python3
"""`make demo-volume`: an encrypted volume on three servers, while one is killed and a spine dies. See volume_demo/."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from scripts.installed import start

    start("scripts/demo_volume.py")
    from scripts.volume_demo.run import main

    sys.exit(main())
