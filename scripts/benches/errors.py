"""What a bench raises on purpose."""

from __future__ import annotations


class BenchError(Exception):
    """Nothing could be measured honestly; the message is one line that says why. Exit status 1."""
