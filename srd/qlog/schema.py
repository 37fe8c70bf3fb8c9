"""The schema of a trace file, shared by writer and reader; docs/trace.md describes it.

A file is qlog 0.3 as a JSON text sequence (draft-ietf-quic-qlog-main-schema-04 and -05, "JSON-SEQ"; RFC 7464: each
record between an RS and an LF): a header, then one record per event. It is the newest version that qvis reads.

1. What QUIC's events (draft-ietf-quic-qlog-quic-events-03) have a name for has that name, and their fields: tools that
   know nothing of SRD draw it. A burst is logged as one packet. What is not in QUIC's event is in its field `srd`, of
   which `event` says what happened here.
2. Everything else is an event of the namespace `srd`, whose data are its fields.
3. Every field of an event is in its record, once, so that the reader gets back what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, get_args, get_type_hints

from srd.proto import trace
from srd.proto.trace import TraceEvent
from srd.qlog.values import (
    ACK_FRAME,
    DATAGRAM_BYTES,
    ENDING,
    NUMBER,
    Value,
    address,
    event_field,
    milliseconds,
    trigger,
)

QLOG_VERSION: Final = "0.3"
QLOG_FORMAT: Final = "JSON-SEQ"
EVENT_SCHEMA: Final = "urn:open-srd:qlog:events:srd-2"
"""URI of this project's events. The number is incremented when a name or a field is removed."""
NAMESPACE: Final = "srd"

RECORD_SEPARATOR: Final = b"\x1e"
MAX_RECORD_BYTES: Final = 1 << 20
"""Longest record that is read; the longest one written is an ack of a whole window of bursts of one packet."""

Template = Mapping[str, Any]
"""The `data` of a record: JSON, with a `Value` for each value that is an event's."""


def snake_case(kind: type[TraceEvent]) -> str:
    """Return what an event class is called in a file: BurstSent is `burst_sent`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


KINDS: Final[tuple[type[TraceEvent], ...]] = get_args(TraceEvent)
FIELDS: Final[dict[type[TraceEvent], dict[str, Any]]] = {
    kind: {field.name: get_type_hints(kind)[field.name] for field in fields(kind)} for kind in KINDS
}
"""Each event's fields with their types: int, tuple[int, ...], float, str or bool."""

_HEADER: Final = {"packet_type": "1RTT", "packet_number": NUMBER}
_FRAMES: Final = [
    {
        "frame_type": "stream",
        "stream_id": event_field("message"),
        "offset": event_field("offset"),
        "length": event_field("payload_bytes"),
    }
]
_STANDARD: Final[dict[type[TraceEvent], tuple[str, Template]]] = {
    trace.PeerOpened: (
        "connectivity:connection_started",
        {"src_ip": address(is_source=True), "dst_ip": address(is_source=False)},
    ),
    trace.PeerEnded: ("connectivity:connection_closed", {"reason": event_field("reason"), "trigger": ENDING}),
    trace.BurstSent: (
        "transport:packet_sent",
        {"header": _HEADER, "raw": {"length": DATAGRAM_BYTES}, "frames": _FRAMES},
    ),
    trace.DataReceived: (
        "transport:packet_received",
        {"header": _HEADER, "raw": {"length": DATAGRAM_BYTES}, "frames": _FRAMES},
    ),
    trace.AckSent: ("transport:packet_sent", {"header": {"packet_type": "1RTT"}, "frames": [ACK_FRAME]}),
    trace.AckReceived: ("transport:packet_received", {"header": {"packet_type": "1RTT"}, "frames": [ACK_FRAME]}),
    trace.ProbeSent: (
        "transport:packet_sent",
        {"header": _HEADER, "frames": [{"frame_type": "ping"}], "trigger": "pto_probe"},
    ),
    trace.PacketsLost: (
        "recovery:packet_lost",
        {"header": _HEADER, "trigger": trigger({"reordering": "time_threshold", "timeout": "pto_expired"})},
    ),
    trace.MetricsUpdated: (
        "recovery:metrics_updated",
        {
            "congestion_window": event_field("cwnd_bytes"),
            "bytes_in_flight": event_field("inflight_bytes"),
            "smoothed_rtt": milliseconds("rtt_us"),
        },
    ),
    trace.PathSampled: (
        "recovery:metrics_updated",
        {"latest_rtt": milliseconds("rtt_us"), "min_rtt": milliseconds("min_us")},
    ),
}
"""The events that are QUIC's, too: name, and what of the data is QUIC's."""


def values_of(template: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Value]]:
    """Yield the values in a template, each with its place: keys and indices from the outside inwards."""
    if isinstance(template, Value):
        yield path, template
    elif isinstance(template, Mapping):
        for key, inner in template.items():
            yield from values_of(inner, (*path, key))
    elif isinstance(template, list):
        for index, inner in enumerate(template):
            yield from values_of(inner, (*path, index))


def _layout(kind: type[TraceEvent]) -> tuple[str, Template]:
    """Return the name and the data of an event's record."""
    if kind not in _STANDARD:
        return f"{NAMESPACE}:{snake_case(kind)}", {name: event_field(name) for name in FIELDS[kind]}
    name, template = _STANDARD[kind]
    there = {field for _, value in values_of(template) for field in value.restored}
    own: dict[str, object] = {field: event_field(field) for field in FIELDS[kind] if field not in there}
    return name, {**template, NAMESPACE: {"event": snake_case(kind), **own}}


LAYOUTS: Final = {kind: _layout(kind) for kind in KINDS}
"""The name of each event's record, and its data."""
_BY_EVENT: Final = {snake_case(kind): kind for kind in _STANDARD}
_BY_NAME: Final = {name: kind for kind, (name, _) in LAYOUTS.items() if kind not in _STANDARD}


def kind_of(name: str, data: Mapping[str, Any]) -> type[TraceEvent] | None:
    """Return which event a record is; None: none of this project's."""
    own = data.get(NAMESPACE)
    if not isinstance(own, dict):
        return _BY_NAME.get(name)
    event = own.get("event")
    kind = _BY_EVENT.get(event) if isinstance(event, str) else None
    return kind if kind is not None and LAYOUTS[kind][0] == name else None
