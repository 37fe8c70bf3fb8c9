"""What commands print for programs: JSON, an event a line or a document."""

from __future__ import annotations

import json
from typing import Any


def emit(event: str, **fields: object) -> None:
    """Print one event as a line."""
    print(json.dumps({"event": event, **fields}), flush=True)


def event_of(line: str) -> dict[str, Any] | None:
    """Return the event that a line is; None if it is not one."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def print_json(found: object) -> None:
    """Print a document, or a row of one a line."""
    print(json.dumps(found, indent=2), flush=True)
