"""nitro_emu.log_ring: what is kept of a log, and how it reads."""

from __future__ import annotations

import asyncio
import json
import logging
import threading

from nitro_emu.log_ring import MAX_MESSAGE, MAX_RECORDS, LogRing, RecordFormatter, record_of, text_of


def record(message: str = "text", **fields: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"msg": message, "name": "nitro_emu.device", "levelname": "INFO", "created": 1.5, **fields}
    )


def test_ring_keeps_the_last_records() -> None:
    ring = LogRing()
    for number in range(MAX_RECORDS + 5):
        ring.handle(record(f"record {number}"))
    kept = ring.after(0)
    assert len(kept) == MAX_RECORDS
    assert (kept[0]["number"], kept[0]["message"]) == (6, "record 5")
    assert kept[-1]["number"] == MAX_RECORDS + 5


async def test_newer_is_woken_from_another_thread() -> None:
    ring = LogRing()
    waiting = asyncio.create_task(ring.newer(0, timeout_s=60))
    await asyncio.sleep(0)
    thread = threading.Thread(target=ring.handle, args=(record("news"),))
    thread.start()
    assert [each["message"] for each in await waiting] == ["news"]
    thread.join()


async def test_newer_ends_without_a_record() -> None:
    assert await LogRing().newer(0, timeout_s=0.001) == []


def test_record_is_one_printable_line_of_bounded_length() -> None:
    made = record_of(record("two\nlines \x1b[2J" + "x" * 5000))
    assert made["message"].startswith("two\\nlines \\x1b[2Jxxx")
    assert len(made["message"]) == MAX_MESSAGE


def test_record_names_its_exception() -> None:
    error = ValueError("why")
    assert record_of(record("failed", exc_info=(ValueError, error, None)))["message"] == "failed: ValueError: why"


def test_text_of_record() -> None:
    assert text_of(record_of(record())) == "1970-01-01T00:00:01.500+00:00 info    nitro_emu.device: text"


def test_formatter_json() -> None:
    line = RecordFormatter(as_json=True).format(record("a\nb"))
    assert json.loads(line) == {"time_s": 1.5, "level": "info", "logger": "nitro_emu.device", "message": "a\\nb"}
    assert RecordFormatter(as_json=False).format(record()).endswith("nitro_emu.device: text")
