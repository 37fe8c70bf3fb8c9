"""The schema of a trace file, shared by writer and reader; docs/trace.md describes it.

A file is a JSON text sequence (RFC 7464: each record between an RS and an LF) as qlog defines it for streaming
(draft-ietf-quic-qlog-main-schema, "JSON-SEQ"): a header record, then one record per event.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Final, get_args, get_type_hints

from srd.proto.trace import TraceEvent

FILE_SCHEMA: Final = "urn:ietf:params:qlog:file:sequential"
SERIALIZATION: Final = "application/qlog+json-seq"
EVENT_SCHEMA: Final = "urn:open-srd:qlog:events:srd-1"
"""URI of this project's events, as qlog requires. The number is incremented when a name or a field is removed."""
NAMESPACE: Final = "srd"

RECORD_SEPARATOR: Final = b"\x1e"
MAX_RECORD_BYTES: Final = 64 << 10
"""Longest record that is read; written records are much shorter."""


def name_of(kind: type[TraceEvent]) -> str:
    """Return the name of an event class in a file; that of BurstSent is `srd:burst_sent`."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
    return f"{NAMESPACE}:{snake}"


KINDS: Final[tuple[type[TraceEvent], ...]] = get_args(TraceEvent)
NAMES: Final[dict[type[TraceEvent], str]] = {kind: name_of(kind) for kind in KINDS}
BY_NAME: Final[dict[str, type[TraceEvent]]] = {name: kind for kind, name in NAMES.items()}
FIELDS: Final[dict[type[TraceEvent], dict[str, type]]] = {
    kind: {field.name: get_type_hints(kind)[field.name] for field in fields(kind)} for kind in KINDS
}
"""Each event's fields with their types: int, float, str or bool."""
