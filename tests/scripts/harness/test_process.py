from __future__ import annotations

import signal
import sys

import pytest

from scripts.harness.errors import BenchError
from scripts.harness.process import Process, ProcessGroup
from tests.patience import PATIENCE_S


def start(group: ProcessGroup, script: str) -> Process:
    return group.start("it", [sys.executable, "-S", "-c", script])


def test_process__tells_events_and_complains() -> None:
    script = """
import sys
print('{"event": "one"}\\nnoise\\n{"event": "tw', end='', flush=True)
print('o"}'); print('{"event": "last"}', flush=True)
print('first', file=sys.stderr); print('it: bad luck', file=sys.stderr); sys.exit(3)"""
    with ProcessGroup() as pipes:
        child = start(pipes, script)
        pipes.turn_while(lambda: child.status is None, within_s=PATIENCE_S)
    assert [event["event"] for event in child.events] == ["one", "two", "last"]
    assert child.last_error == "it: bad luck"
    assert child.status == 3


def test_event__by_kind_and_fields_each_once_in_any_order() -> None:
    script = """
print('{"event": "card", "card": "a"}\\n{"event": "ready"}\\n{"event": "card", "card": "b"}', flush=True)
print(f'{{"event": "echo", "line": "{input()}"}}', flush=True)"""
    with ProcessGroup() as pipes:
        child = start(pipes, script)
        assert pipes.event(child, "card", card="b")["card"] == "b"
        assert pipes.event(child, "ready") == {"event": "ready"}
        assert pipes.event(child, "card")["card"] == "a"
        assert pipes.request(child, "hello", "echo")["line"] == "hello"
        with pytest.raises(BenchError, match=r"^the it ended with status 0: no output$"):
            pipes.event(child, "card")


def test_event__of_one_that_says_nothing() -> None:
    with ProcessGroup() as pipes:
        child = start(pipes, "import signal; signal.pause()")
        with pytest.raises(BenchError, match=r"^the it sent no 'ready' within 0\.1 s: no output$"):
            pipes.event(child, "ready", bound_s=0.1)


def test_listening__stops_all_and_hears_their_last_words() -> None:
    script = """
import signal
def last_words(*_):
    print('{"event": "farewell"}', flush=True); raise SystemExit(0)
signal.signal(signal.SIGTERM, last_words); print('{"event": "ready"}', flush=True); signal.pause()"""
    with ProcessGroup() as pipes:
        children = [start(pipes, script) for _ in range(2)]
        for child in children:
            pipes.event(child, "ready", bound_s=PATIENCE_S)
    for child in children:
        assert [event["event"] for event in child.events] == ["ready", "farewell"]
        assert child.status == 0


def test_stop__the_deaf_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.harness.process.GRACE_S", 0.1)
    script = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{"event": "ready"}', flush=True)
while True: signal.pause()"""
    with ProcessGroup() as pipes:
        child = start(pipes, script)
        pipes.event(child, "ready", bound_s=PATIENCE_S)
    assert child.status == -signal.SIGKILL


def test_require_running__names_the_one_that_has_ended() -> None:
    with ProcessGroup() as pipes:
        child = start(pipes, "input(); raise SystemExit('no more')")
        pipes.require_running()
        child.write(b"\n")
        pipes.turn_while(lambda: child.status is None, within_s=PATIENCE_S)
        with pytest.raises(BenchError, match=r"^the it ended with status 1: no more$"):
            pipes.require_running()


def test_ended__names_the_late_ones_and_what_they_said() -> None:
    with ProcessGroup() as pipes:
        late = pipes.start("late one", [sys.executable, "-S", "-c", "import signal; signal.pause()"])
        first = start(pipes, "raise SystemExit('bad luck')")
        with pytest.raises(BenchError, match=r"^not done within 60 s: late one \(bad luck\)$"):
            pipes.ended(late, first, bound_s=60.0, after_first_s=0.0)
        with pytest.raises(BenchError, match=r"^the it ended with status 1: bad luck$"):
            pipes.ended(first, bound_s=PATIENCE_S)
