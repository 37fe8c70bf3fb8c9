"""Reads a trace file record by record, and validates all of it.

A file whose writer was killed ends in the middle of a record; RFC 7464 (section 2.3) requires readers to tolerate that.
All other damage is an error that names the record. Unknown events and fields are ignored, so that files of newer
writers can be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Never

from srd.proto.trace import TraceEvent
from srd.qlog.errors import TraceError
from srd.qlog.schema import (
    EVENT_SCHEMA,
    FIELDS,
    LAYOUTS,
    MAX_RECORD_BYTES,
    QLOG_FORMAT,
    RECORD_SEPARATOR,
    kind_of,
    values_of,
)
from srd.qlog.values import checked

READ_BYTES = 1 << 20
_PLACES: Final = {
    kind: [(path, value) for path, value in values_of(template) if value.restored]
    for kind, (_, template) in LAYOUTS.items()
}
"""Where in a record's data the fields of each event are."""


@dataclass(frozen=True, slots=True)
class Record:
    """One event of a file."""

    at_s: float
    """Time since the beginning of the trace."""
    peer: int
    event: TraceEvent


class TraceReader:
    """Reads one file. Raises TraceError, and nothing else, for invalid contents."""

    def __init__(self, stream: BinaryIO, *, name: str) -> None:
        """Read from an open file; `name` is its name in errors."""
        self.title = ""
        self.vantage_point = "unknown"
        self.cut_off = False
        """Whether the file ends within a record; set when the end has been read."""
        self._stream = stream
        self._name = name
        self._number = 0  # of the current record

    def read_untrusted(self) -> Iterator[Record]:
        """Yield all records; the header's attributes are set before the first one is yielded."""
        texts = self._texts_untrusted()
        header = next(texts, None)
        if header is None:
            self._refuse("has no header; it is empty, or its writer was killed at once")
        self._take_header(header)
        for text in texts:
            if (record := self._record(text)) is not None:
                yield record

    # -- framing ------------------------------------------------------------------------------------------------

    def _texts_untrusted(self) -> Iterator[dict[str, Any]]:
        """Yield each record's JSON object."""
        rest = b""
        started = False
        while chunk := self._read():
            *whole, rest = (rest + chunk).split(RECORD_SEPARATOR)
            for text in whole:
                if started:
                    yield from self._parsed(text, last=False)
                elif text:
                    self._refuse("is no trace: it does not begin with a record separator (0x1E)")
                started = True
            if len(rest) > MAX_RECORD_BYTES:
                self._number += 1
                self._refuse(f"is longer than {MAX_RECORD_BYTES} bytes")
        if started:
            yield from self._parsed(rest, last=True)
        elif rest:
            self._refuse("is no trace: it does not begin with a record separator (0x1E)")

    def _read(self) -> bytes:
        try:
            return self._stream.read(READ_BYTES)
        except OSError as error:
            raise TraceError(f"{self._name}: cannot be read: {error.strerror}") from error

    def _parsed(self, text: bytes, *, last: bool) -> Iterator[dict[str, Any]]:
        if not text.strip():
            return  # separators in a row are allowed
        self._number += 1
        if len(text) > MAX_RECORD_BYTES:
            self._refuse(f"is longer than {MAX_RECORD_BYTES} bytes")
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            if last and not text.endswith(b"\n"):
                self.cut_off = True
                return
            self._refuse("is not JSON; the file is damaged")
        if not isinstance(value, dict):
            self._refuse("is not a JSON object; the file is damaged")
        yield value

    # -- contents -----------------------------------------------------------------------------------------------

    def _take_header(self, header: dict[str, Any]) -> None:
        trace = header.get("trace")
        if header.get("qlog_format") != QLOG_FORMAT or not isinstance(trace, dict):
            self._refuse("is no header of a qlog JSON-SEQ trace")
        common = trace.get("common_fields")
        schemas = common.get("event_schemas") if isinstance(common, dict) else None
        if not isinstance(schemas, list) or EVENT_SCHEMA not in schemas:
            self._refuse(f"names other events than {EVENT_SCHEMA}: this trace is another program's, or an older one")
        if isinstance(title := header.get("title"), str):
            self.title = title
        point = trace.get("vantage_point")
        if isinstance(point, dict) and isinstance(point.get("type"), str):
            self.vantage_point = point["type"]

    def _record(self, record: dict[str, Any]) -> Record | None:
        name, data = record.get("name"), record.get("data")
        if not isinstance(name, str):
            self._refuse("is an event without a name")
        if not isinstance(data, dict):
            self._refuse("has no data")
        if (kind := kind_of(name, data)) is None:
            return None
        time_ms, group = record.get("time"), record.get("group_id")
        try:
            at_s = checked(time_ms, float) / 1e3
        except ValueError:
            self._refuse(f"has no time in milliseconds: {time_ms!r:.40}")
        if not isinstance(group, str) or not group.isascii() or not group.isdigit() or len(group) > 18:
            self._refuse(f"has no peer's number as group_id: {group!r:.40}")
        values: dict[str, Any] = {}
        for path, value in _PLACES[kind]:
            found = _at(data, path)
            try:
                values |= value.decode_untrusted(found, FIELDS[kind])
            except ValueError as error:
                self._refuse(f"({name}) {'.'.join(map(str, path))} {error}: {found!r:.40}")
        return Record(at_s, int(group), kind(**values))

    def _refuse(self, why: str) -> Never:
        where = f"record {self._number} " if self._number else ""
        raise TraceError(f"{self._name}: {where}{why}")


def _at(data: object, path: tuple[str | int, ...]) -> object:
    """Return what is at a place in JSON; None: nothing."""
    for step in path:
        if isinstance(step, str) and isinstance(data, dict):
            data = data.get(step)
        elif isinstance(step, int) and isinstance(data, list) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def _no_constant(name: str) -> Never:
    raise ValueError(name)
