#!/usr/bin/env python3
"""`make demo-roce`: RoCE with PFC beside DCQCN, IRN, TCP and SRD, in virtual time: a table and a picture."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from scripts.installed import start

    start("scripts/demo_roce.py")
    from scripts.benches.roce_picture import main

    main()
