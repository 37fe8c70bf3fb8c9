"""netns.base.logs: a line for each record, on what is stderr at the time."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from netns.base.logs import line_of, logging_to_stderr


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return line_of(record)


def test_line_of__one_printable_line_with_the_error() -> None:
    error = ValueError("why")
    values = {"msg": "two\n%s", "args": ("lines",), "exc_info": (ValueError, error, None)}
    assert line_of(logging.makeLogRecord(values)) == "two\\nlines: ValueError: why"


def test_logging_to_stderr__levels_and_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    own, foreign = logging.getLogger("base_test.x"), logging.getLogger("other")
    before = len(logging.getLogger().handlers), logging.getLogger("base_test").level
    with logging_to_stderr(_Formatter(), level=logging.INFO, logger="base_test"):
        own.info("one")
        own.debug("two")
        foreign.info("three")
        foreign.warning("four")
    own.warning("five")
    assert capsys.readouterr().err == "one\nfour\n"
    assert (len(logging.getLogger().handlers), logging.getLogger("base_test").level) == before


def test_logging_to_stderr__without_a_reader_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Broken())
    with logging_to_stderr(_Formatter(), level=logging.INFO):
        logging.getLogger("base_test").warning("lost")
