"""What a workload's processes say: one JSON object a line."""

from __future__ import annotations

import json
from typing import Any


def emit(event: str, **fields: Any) -> None:
    """Print a line."""
    print(json.dumps({"event": event, **fields}), flush=True)
