"""How long a test waits for what has to come: not a figure that is tested, but when waiting is given up as a hang."""

from __future__ import annotations

from typing import Final

PATIENCE_S: Final = 60
"""Enough on a machine ten times slower than usual, with coverage. No test waits for it to pass."""
