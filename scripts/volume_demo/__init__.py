"""`make demo-volume`; see run.py."""
