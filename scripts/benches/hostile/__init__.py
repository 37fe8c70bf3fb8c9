"""Hostile packets beside a regular transfer: what they cost it, and whether anything gives way."""
