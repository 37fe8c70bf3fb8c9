"""Events: one JSON object per line, the common output format of all programs that a bench runs.

`srd recv --json-lines`, `srd send --json-lines` and the workers of the benches print them, so that the same code drives
all of them. The first of a server is `listening {address, port}`.
"""

from __future__ import annotations

import json
from typing import Any


def emit(kind: str, **fields: Any) -> None:
    """Print one event and flush."""
    print(json.dumps({"event": kind, **fields}), flush=True)


def parse(line: str) -> dict[str, Any] | None:
    """Return the event in `line`, or None if it is not an event."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
