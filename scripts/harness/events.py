"""Events: one JSON object per line, the common output format of all programs that transfer a file here.

`srd recv --json`, `srd send --json` and the TCP tool all print them, so that the same code drives and measures all
protocols:

    listening {address, port}                           the receiver accepts connections
    progress  {seconds, bytes}                          about every 50 ms from the first byte on
    received  {bytes, seconds, hash, digest, longest_stall_ms, ...}   verified and in place
    sent      {bytes, seconds, hash, digest, verified, ...}   the receiver has verified every byte
    stopped   {retransmitted_fraction, ...}             the sender was ordered to stop (TCP tool only)
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
