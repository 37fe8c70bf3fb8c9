"""The applications of the bench `card`, as one program: `python -m scripts.benches.card.worker ROLE RUN_DIR ...`."""
