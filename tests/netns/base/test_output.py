"""netns.base.output: JSON for programs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.base.output import emit, event_of


def test_emit__one_line_that_is_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    emit("sent", name="a\nb", bytes=7)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert event_of(out) == {"event": "sent", "name": "a\nb", "bytes": 7}


@pytest.mark.parametrize("line", ["", "hello", "[1]", "3", '{"a": 1}', '{"event": 5}', "{", "[" * 100_000])
def test_event_of__other_lines_are_no_events(line: str) -> None:
    assert event_of(line) is None


@given(st.text())
def test_event_of__no_line_breaks_it(line: str) -> None:
    event = event_of(line)
    assert event is None or isinstance(event["event"], str)
