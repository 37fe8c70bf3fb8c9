"""netns.children: what they print, how they end, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from netns.children import Child, Children, Output
from netns.errors import BackendError
from tests.patience import PATIENCE_S

Line = tuple[Output, str]


def python(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


def turn_until_ended(children: Children[Child], child: Child) -> None:
    children.turn_while(lambda: child.status is None, within_s=PATIENCE_S)
    children.read_rest()


def test_lines__of_both_streams_and_the_last_error() -> None:
    lines: list[Line] = []
    with Children[Child](lambda _child, stream, line: lines.append((stream, line))) as children:
        text = "import sys\nprint(input() * 2)\nprint('a', end='')\nsys.exit('boom')"
        child = children.spawn(python(text), become=Child)
        child.write(b"x\n")
        turn_until_ended(children, child)
    assert sorted(lines) == [("stderr", "boom"), ("stdout", "a"), ("stdout", "xx")]
    assert (child.status, child.last_error, child.open_pipes) == (1, "boom", 0)
    child.write(b"nobody reads it\n")


@pytest.mark.parametrize(("grace_s", "status"), [(0, -signal.SIGKILL), (PATIENCE_S, 7)])
def test_end__with_and_without_a_grace(grace_s: float, status: int) -> None:
    text = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint()\nsignal.pause()"
    lines: list[Line] = []
    with Children[Child](lambda _child, stream, line: lines.append((stream, line)), grace_s=grace_s) as children:
        child = children.spawn(python(text), become=Child)
        children.turn_while(lambda: not lines, within_s=PATIENCE_S)
    assert child.status == status


def test_end__of_what_a_child_has_left_running() -> None:
    pids: list[int] = []
    with Children[Child](lambda _child, _stream, line: pids.append(int(line))) as children:
        child = children.spawn(["sh", "-c", "sleep 600 & echo $!"], become=Child)
        turn_until_ended(children, child)
        assert child.status == 0
    give_up_at = time.monotonic() + PATIENCE_S
    while os.path.exists(f"/proc/{pids[0]}/fd/1"):  # noqa: PTH110 - a zombie has none
        assert time.monotonic() < give_up_at


def test_spawn__bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netns.children.ending_with_us", lambda _command: ["/nowhere/setpriv"])
    with Children[Child](print) as children, pytest.raises(BackendError, match=r"^true: No such file or directory$"):
        children.spawn(["true"], become=Child)
