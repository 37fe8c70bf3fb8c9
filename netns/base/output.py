"""What commands print for programs: JSON, an event a line or a document."""

from __future__ import annotations

import json


def emit(event: str, **fields: object) -> None:
    """Print one event as a line."""
    print(json.dumps({"event": event, **fields}), flush=True)


def print_json(found: object) -> None:
    """Print a document, or a row of one a line."""
    print(json.dumps(found, indent=2), flush=True)
