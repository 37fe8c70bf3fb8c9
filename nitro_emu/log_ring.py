"""The last records of the log, kept in memory for `nitro-card logs`, and how records are written."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Final, TypedDict

from netns.base.logs import line_of
from netns.base.printable import printable

MAX_RECORDS: Final = 1000
"""Some hours of a card's life, in less than 1 MiB."""

MAX_MESSAGE: Final = 2000
"""Characters of a message that are kept."""


class LogRecord(TypedDict):
    """A record of the log, as JSON has it."""

    number: int
    """Counts from 1; a gap shows that records were dropped before they were read."""
    time_s: float
    """Since 1970."""
    level: str
    logger: str
    message: str


class LogRing(logging.Handler):
    """Keeps the last records. Other threads may log; `newer` is for the event loop's."""

    def __init__(self) -> None:
        super().__init__()
        self._records: deque[LogRecord] = deque(maxlen=MAX_RECORDS)
        self._count = 0
        self._guard = threading.Lock()
        self._waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record, and wake who waits for it."""
        with self._guard:
            self._count += 1
            self._records.append(record_of(record, number=self._count))
            waiters = list(self._waiters)
        for loop, event in waiters:
            loop.call_soon_threadsafe(event.set)

    def after(self, number: int) -> list[LogRecord]:
        """Return the records with numbers greater than `number`."""
        with self._guard:
            return [record for record in self._records if record["number"] > number]

    async def newer(self, number: int, *, timeout_s: float) -> list[LogRecord]:
        """Return the records with numbers greater than `number`; wait for one, but not longer than `timeout_s`."""
        waiter = asyncio.get_running_loop(), asyncio.Event()
        with self._guard:
            self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                while not (found := self.after(number)):
                    waiter[1].clear()
                    await waiter[1].wait()
                return found
        except TimeoutError:
            return []
        finally:
            with self._guard:
                self._waiters.discard(waiter)


def record_of(record: logging.LogRecord, *, number: int = 0) -> LogRecord:
    """Return a log record in this module's form, with the exception's last line if it has one."""
    return LogRecord(
        number=number,
        time_s=round(record.created, 6),
        level=record.levelname.lower(),
        logger=record.name,
        message=line_of(record)[:MAX_MESSAGE],
    )


def text_of(record: LogRecord) -> str:
    """Return a record as one line for people."""
    at = datetime.fromtimestamp(record["time_s"], UTC).isoformat(timespec="milliseconds")
    return printable(f"{at} {record['level']:7} {record['logger']}: {record['message']}")


class RecordFormatter(logging.Formatter):
    """Formats records as one line each, of text or of JSON."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        made = record_of(record)
        return (
            json.dumps({key: value for key, value in made.items() if key != "number"})
            if self._as_json
            else text_of(made)
        )
