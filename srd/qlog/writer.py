"""Writes a trace file while packets move.

1. Memory and time are bounded: the buffer has 64 KiB, and an event costs one line of JSON.
2. The file is readable while it grows: the buffer is flushed when it is full and, while events occur, once a second.
3. A write error (a full disk) ends the trace, not the transfer: later events are dropped, and `close` raises.
4. A write blocks the caller until the page cache has accepted the data, so a trace should not be written to a slow
   network file system.
5. It replaces an older trace and an empty file, and never a file of anything else.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from srd.proto.trace import TraceEvent
from srd.qlog.errors import TraceError
from srd.qlog.schema import EVENT_SCHEMA, KINDS, LAYOUTS, QLOG_FORMAT, QLOG_VERSION, RECORD_SEPARATOR
from srd.qlog.values import Value, json_text

BUFFER_BYTES = 64 << 10
"""Several hundred events, so that the cost of a system call per event is negligible."""
FLUSH_INTERVAL_S = 1.0
"""Maximum delay, while there are events, until an event can be read from the file."""

VantagePoint = Literal["client", "server", "unknown"]


def _template(template: object, values: list[Value]) -> str:
    """Return a record's data as a template for `%`; appends its values, in order, to `values`."""
    if isinstance(template, Value):
        values.append(template)
        return "%s"
    if isinstance(template, Mapping):
        members = [f"{json_text(key)}:{_template(inner, values)}" for key, inner in template.items()]
        return "{" + ",".join(members) + "}"
    if isinstance(template, list):
        return "[" + ",".join(_template(inner, values) for inner in template) + "]"
    return json_text(template)


def _encoder(kind: type[TraceEvent]) -> tuple[str, list[Callable[[Any], str]]]:
    """Return an event's record as a template, and what encodes each value: faster than encoding a dict."""
    name, template = LAYOUTS[kind]
    values: list[Value] = []
    data = _template(template, values)
    return f'{{"time":%s,"name":"{name}","group_id":"%d","data":{data}}}', [value.encode for value in values]


_ENCODERS: Final = {kind: _encoder(kind) for kind in KINDS}


def is_no_trace(path: Path) -> bool:
    """Return whether this is a file with contents other than a trace's, which a trace must not replace.

    Raises OSError when the file cannot be read.
    """
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(1) not in {b"", RECORD_SEPARATOR}


class TraceWriter:
    """A trace file that records events (implements `srd.proto.trace.Trace`); a context manager that closes it."""

    def __init__(
        self,
        path: Path,
        *,
        now: float,
        title: str = "srd",
        vantage_point: VantagePoint = "unknown",
        wall_clock: datetime | None = None,
    ) -> None:
        """Create or truncate the file and write its header; its times are relative to `now`, in seconds.

        `vantage_point`: "client" opens peers, "server" accepts them. `wall_clock`: the date and time of `now`, if it is
        to be recorded. Raises TraceError when the file cannot be written, or is no trace (rule 5).
        """
        self._path = path
        self._started_at = now
        self._flush_at = now + FLUSH_INTERVAL_S
        self._error: OSError | None = None
        try:
            if is_no_trace(path):
                raise FileExistsError(errno.EEXIST, "it exists, and is no trace")
            self._file = path.open("wb", buffering=BUFFER_BYTES)
        except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
            raise self._complaint(error) from error
        self._write(json_text(_header(title=title, vantage_point=vantage_point, wall_clock=wall_clock)))
        if not self._flush():
            self.close()

    def record(self, event: TraceEvent, *, peer: int, now: float) -> None:
        """Append an event."""
        if self._error is not None:
            return
        template, encoders = _ENCODERS[type(event)]
        values = [encode(event) for encode in encoders]
        self._write(template % (round((now - self._started_at) * 1e3, 4), peer, *values))
        if now >= self._flush_at:
            self._flush()
            self._flush_at = now + FLUSH_INTERVAL_S

    def _write(self, text: str) -> None:
        try:
            self._file.write(b"%b%b\n" % (RECORD_SEPARATOR, text.encode()))
        except OSError as error:
            self._error = error

    def _flush(self) -> bool:
        """Flush the buffer; return False if there was an error, now or before."""
        try:
            self._file.flush()
        except OSError as error:
            self._error = error
        return self._error is None

    def close(self) -> None:
        """Flush the buffer and close the file. Raises TraceError when not all of the trace could be written."""
        try:
            self._file.close()
        except OSError as error:
            self._error = self._error or error
        if self._error is not None:
            raise self._complaint(self._error) from self._error

    def _complaint(self, error: OSError | ValueError) -> TraceError:
        why = error.strerror if isinstance(error, OSError) else error
        return TraceError(f"{self._path}: the trace cannot be written ({why}); choose another place")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except TraceError:
            if error is None:  # otherwise the exception of the block takes precedence
                raise


def _header(*, title: str, vantage_point: VantagePoint, wall_clock: datetime | None) -> dict[str, object]:
    return {
        "qlog_version": QLOG_VERSION,
        "qlog_format": QLOG_FORMAT,
        "title": title,
        "trace": {
            "title": title,
            "vantage_point": {"name": f"open-srd {_version()}", "type": vantage_point},
            "common_fields": {
                "protocol_type": ["QUIC", "SRD"],  # the first one: as qlog demands where events are QUIC's
                "time_format": "relative",
                "reference_time": 0.0 if wall_clock is None else round(wall_clock.timestamp() * 1e3, 3),
                "event_schemas": [EVENT_SCHEMA],
            },
        },
    }


def _version() -> str:
    try:
        return version("open-srd")
    except PackageNotFoundError:  # run from a source tree
        return "unknown"
