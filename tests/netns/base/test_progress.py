"""netns.base.progress: the time left, on a terminal and elsewhere."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from netns.base import progress
from netns.base.progress import Estimate, Progress, clock
from tests.patience import PATIENCE_S
from tests.terminal import Terminal


class Lines(io.StringIO):
    """A stream that is no terminal; `two` is set when it has two lines."""

    def __init__(self) -> None:
        super().__init__()
        self.two = Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.getvalue().count("\n") == 2:
            self.two.set()
        return written


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def silent(kinds: str, **options: Any) -> tuple[Progress, Clock]:
    """Return work that is shown nowhere, of parts named by a letter each."""
    watch = Clock()
    return Progress("work", kinds, is_plain=False, stream=io.StringIO(), clock_s=watch, **options), watch


def test_clock() -> None:
    assert (clock(None), clock(125.4), clock(4.0)) == ("-:--", "2:05", "0:04")


def test_estimate__of_the_same_kind_or_of_all() -> None:
    estimate = Estimate()
    assert estimate.left_s("aab") is None
    estimate.add("a", took_s=1.0)
    assert estimate.left_s("aa") == 2.0
    estimate.add("b", took_s=3.0)
    assert estimate.left_s("abc") == estimate.left_s(dict.fromkeys("abc", 7)) == 1.0 + 3.0 + 2.0


def test_estimate__of_the_last_time_until_there_is_one_of_this_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "seconds.json"
    estimate = Estimate.read(path)
    assert estimate.left_s("a") is None
    estimate.add("a", took_s=5.0)
    estimate.write(path)
    again = Estimate.read(path)
    assert (again.left_s("aa"), again.left_s("ab")) == (10.0, None)
    again.add("b", took_s=1.0)
    assert again.left_s("ab") == 6.0
    again.add("a", took_s=3.0)
    assert again.means() == {"a": 3.0, "b": 1.0}


@pytest.mark.parametrize("damaged", ["", "{", "[1]", json.dumps({"a": "long"}), json.dumps({"a": None})])
def test_estimate__a_damaged_file_is_none(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "seconds.json"
    path.write_text(damaged)
    assert Estimate.read(path).left_s("a") is None
    Estimate({"a": 1.0}).write(path / "below")  # cannot be written


def test_left__counts_down_and_no_part_takes_less_than_nothing() -> None:
    work, watch = silent("aaa")
    assert (work.left_s(), work.text()) == (None, "work: 0 of 3, 0:00 so far")
    watch.now_s += 60
    assert work.text() == "work: 0 of 3, 1:00 so far"
    work.end("a")
    assert work.text() == "work: 1 of 3, 2:00 left"
    watch.now_s += 20
    assert work.left_s() == 100.0
    watch.now_s += 200
    assert work.left_s() == 60.0
    work.end("a", is_measured=False)
    watch.now_s += 61
    assert work.text() == "work: 2 of 3, 5:41 so far"
    work.end("a")
    assert work.text() == "work: 3 of 3, 0:00 left"


def test_left__of_a_part_that_says_how_far_it_is() -> None:
    work, watch = silent("a")
    watch.now_s += 30
    work.at("slice 1", fraction=0.25)
    assert work.text() == "work: 25%, 1:30 left: slice 1"
    watch.now_s += 20
    work.at("slice 1", fraction=0.25)  # the same again: time goes on
    assert work.text() == "work: 25%, 1:10 left: slice 1"
    watch.now_s += 90
    assert work.text() == "work: 25%, 2:20 so far: slice 1"
    work, watch = silent("aa")
    watch.now_s += 30
    work.at("", fraction=0.5)
    assert work.left_s() == 30.0 + 60.0


def test_left__of_parts_that_are_done_at_a_time() -> None:
    work, _ = silent("aabb", workers=2, estimate=Estimate({"a": 10.0, "b": 20.0}))
    work.end("b", took_s=20.0)
    assert work.left_s() == 10.0 + (10.0 + 20.0) / 2
    work.end("a", took_s=10.0)
    work.end("a", took_s=10.0)
    work.end("b", took_s=20.0)
    assert work.left_s() == 0.0


def test_elsewhere__whole_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_S", 0.001)
    lines = Lines()
    with Progress("work", "aa", stream=lines):
        assert lines.two.wait(PATIENCE_S)
    assert lines.getvalue().splitlines()[0] == "work: 0 of 2, 0:00 so far"
    assert "\x1b" not in lines.getvalue()


def test_terminal__a_line_which_what_is_printed_stands_above(monkeypatch: pytest.MonkeyPatch) -> None:
    with Terminal() as terminal:
        monkeypatch.setattr(sys, "stderr", terminal.stream)
        with Progress("work", "aa") as work:
            terminal.wait_for("\r\x1b[K[--------------------] work: 0 of 2")
            work.say("seed 7")
            terminal.wait_for("\r\x1b[Kseed 7\r\n\r\x1b[K[--------------------] work: 0 of 2")
            work.at("the first")
            work.end("a", took_s=61.0)
            terminal.wait_for("\r\x1b[K[##########----------] work: 1 of 2, 1:01 left")
            work.at("the second")
            terminal.wait_for(" left: the second")
            work.stop()
            work.say("over")
        assert terminal.text.endswith("\r\x1b[Kover\r\n")


def test_terminal__nothing_is_left_of_the_line_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Terminal() as terminal:
        monkeypatch.setattr(sys, "stderr", terminal.stream)
        with pytest.raises(ValueError, match="no"), Progress("work", "aa"):
            raise ValueError("no")
        assert terminal.text.endswith("\r\x1b[K")
