"""netns.base.printable: only text reaches a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from netns.base.printable import printable


def test_printable__keeps_printable_text() -> None:
    assert printable("a ü 🎉 [b]") == "a ü 🎉 [b]"


def test_printable__escapes_the_rest() -> None:
    assert printable("\t\x00\x1b]0;pwn\x07\r\n\u202e\udcff") == r"\t\x00\x1b]0;pwn\x07\r\n\u202e\udcff"


@given(text=st.text())
def test_printable__is_one_line_and_idempotent(text: str) -> None:
    once = printable(text)
    assert once.isprintable()
    assert printable(once) == once
