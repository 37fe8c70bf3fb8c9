"""`python -m scripts.benches.card.worker ROLE RUN_DIR ...`: one application."""

from __future__ import annotations

from scripts.benches.card.worker.cli import main

main()
