"""Names of another vendor's provider: see `pyverbs.absent`."""
