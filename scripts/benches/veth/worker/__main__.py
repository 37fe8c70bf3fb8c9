"""`python -m scripts.benches.veth.worker ROLE ...`: one end of one bench."""

from __future__ import annotations

from scripts.benches.veth.worker.cli import main

main()
