from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.harness.events import emit, parse


def test_emit__what_is_printed_can_be_parsed(capsys: pytest.CaptureFixture[str]) -> None:
    emit("progress", seconds=0.5, bytes=7)
    printed = capsys.readouterr().out
    assert printed.endswith("\n")
    assert parse(printed) == {"event": "progress", "seconds": 0.5, "bytes": 7}


@pytest.mark.parametrize("line", ["", "hello", "[1]", "3", '{"a": 1}', '{"event": 5}', "{"])
def test_parse__other_lines_are_no_events(line: str) -> None:
    assert parse(line) is None


@given(st.text())
def test_parse__no_line_breaks_it(line: str) -> None:
    event = parse(line)
    assert event is None or isinstance(event["event"], str)
