"""What the writer and the reader of a trace file agree on; docs/trace.md is its prose.

A file is a JSON text sequence (RFC 7464: each record between an RS and an LF) as qlog defines it for streaming
(draft-ietf-quic-qlog-main-schema, "JSON-SEQ"): a header record, then one record an event.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Final, get_args, get_type_hints

from srd.proto.trace import TraceEvent

FILE_SCHEMA: Final = "urn:ietf:params:qlog:file:sequential"
SERIALIZATION: Final = "application/qlog+json-seq"
EVENT_SCHEMA: Final = "urn:open-srd:qlog:events:srd-1"
"""Ours alone: qlog asks for a URI that tells sets of events apart. The number grows when a name or a field goes."""
NAMESPACE: Final = "srd"

RECORD_SEPARATOR: Final = b"\x1e"
MAX_RECORD_BYTES: Final = 64 << 10
"""Longest record that is read: fifty times the longest that is written."""


def name_of(kind: type[TraceEvent]) -> str:
    """Return the name of an event's class in a file: BurstSent is `srd:burst_sent`."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
    return f"{NAMESPACE}:{snake}"


KINDS: Final[tuple[type[TraceEvent], ...]] = get_args(TraceEvent)
NAMES: Final[dict[type[TraceEvent], str]] = {kind: name_of(kind) for kind in KINDS}
BY_NAME: Final[dict[str, type[TraceEvent]]] = {name: kind for kind, name in NAMES.items()}
FIELDS: Final[dict[type[TraceEvent], dict[str, type]]] = {
    kind: {field.name: get_type_hints(kind)[field.name] for field in fields(kind)} for kind in KINDS
}
"""Each event's fields with their types: int, float, str or bool."""
