"""The error of measurements."""

from __future__ import annotations


class BenchError(Exception):
    """No valid measurement was possible; the message is one line with the reason. Exit status 1."""
