"""Programs that a test runs to their end."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S


def run_to_end(
    argv: Sequence[str | Path], *, within_s: float = PATIENCE_S, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program with a deadline; return its status and what it has written, or raise if it fails and `check`."""
    return subprocess.run(argv, capture_output=True, text=True, timeout=within_s, check=check, **options)
