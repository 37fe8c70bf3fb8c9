"""Both ends of what `srd perf` does not measure: see scripts/harness/worker.py."""
