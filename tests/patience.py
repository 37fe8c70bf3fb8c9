"""The longest that a test waits for an event that must come, before it counts as a hang."""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 60
"""Enough on a machine ten times slower than usual, with coverage. A passing test does not wait this long."""
