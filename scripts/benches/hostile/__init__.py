"""Hostile packets beside a regular transfer: their effect on its throughput and correctness."""
