"""netns.base.output: JSON for programs."""

from __future__ import annotations

import json

import pytest

from netns.base.output import emit, print_json


def test_emit__one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    emit("sent", name="a\nb", bytes=7)
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"event": "sent", "name": "a\nb", "bytes": 7}


def test_print_json__one_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": ["b\nc"]})
    assert json.loads(capsys.readouterr().out) == {"a": ["b\nc"]}
