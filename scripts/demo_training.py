#!/usr/bin/env python3
"""`make demo-training`: a model trained by DDP over SRD and over gloo while the fabric fails. See training_demo/."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from scripts.installed import start

    start("scripts/demo_training.py")
    from scripts.training_demo.run import main

    sys.exit(main())
