from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

import pytest

from scripts.harness.errors import BenchError
from scripts.harness.process import Process, ProcessGroup
from tests.patience import PATIENCE_S


def start(script: str) -> Process:
    return Process.start("it", command=[sys.executable, "-S", "-c", script])


def hear_out(pipes: ProcessGroup, child: Process) -> None:
    """Listen until it has ended."""
    give_up_at = time.monotonic() + PATIENCE_S
    while child.exit_status is None and time.monotonic() < give_up_at:
        pipes.wait(until=time.monotonic() + 0.05)


def hear_ready(pipes: ProcessGroup, child: Process) -> None:
    """Listen until its first event."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not child.events and time.monotonic() < give_up_at:
        pipes.wait(until=give_up_at)


def test_process__tells_events_and_complains() -> None:
    script = """
import sys
print('{"event": "one"}\\nnoise\\n{"event": "tw', end='', flush=True)
print('o"}'); print('{"event": "last"}', flush=True)
print('first', file=sys.stderr); print('it: bad luck', file=sys.stderr); sys.exit(3)"""
    with ProcessGroup() as pipes:
        child = pipes.add(start(script))
        hear_out(pipes, child)
    assert [event["event"] for event in child.events] == ["one", "two", "last"]
    assert child.last_error == "it: bad luck"
    assert child.exit_status == 3


def test_process__a_silent_one_has_no_last_error() -> None:
    with ProcessGroup() as pipes:
        child = pipes.add(start(""))
        hear_out(pipes, child)
    assert child.last_error == ""
    assert child.exit_status == 0


def test_event__by_kind_and_fields_each_once_in_any_order() -> None:
    script = """
print('{"event": "card", "card": "a"}\\n{"event": "ready"}\\n{"event": "card", "card": "b"}', flush=True)
print(f'{{"event": "echo", "line": "{input()}"}}', flush=True)"""
    with ProcessGroup() as pipes:
        child = pipes.add(start(script))
        assert pipes.event(child, "card", card="b")["card"] == "b"
        assert pipes.event(child, "ready") == {"event": "ready"}
        assert pipes.event(child, "card")["card"] == "a"
        assert pipes.request(child, "hello", "echo")["line"] == "hello"
        with pytest.raises(BenchError, match=r"^the it ended with status 0: no output$"):
            pipes.event(child, "card")


def test_event__of_one_that_says_nothing() -> None:
    with ProcessGroup() as pipes:
        child = pipes.add(start("import signal; signal.pause()"))
        with pytest.raises(BenchError, match=r"^the it sent no 'ready' within 0\.1 s: no output$"):
            pipes.event(child, "ready", bound_s=0.1)


def test_listening__stops_all_and_hears_their_last_words() -> None:
    script = """
import signal
def last_words(*_):
    print('{"event": "farewell"}', flush=True); raise SystemExit(0)
signal.signal(signal.SIGTERM, last_words); print('{"event": "ready"}', flush=True); signal.pause()"""
    with ProcessGroup() as pipes:
        children = [pipes.add(start(script)) for _ in range(2)]
        for child in children:
            hear_ready(pipes, child)
    for child in children:
        assert [event["event"] for event in child.events] == ["ready", "farewell"]
        assert child.exit_status == 0


def test_stop__the_deaf_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.harness.process._GRACE_S", 0.1)
    script = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN); print('{"event": "ready"}', flush=True)
while True: signal.pause()"""
    with ProcessGroup() as pipes:
        child = pipes.add(start(script))
        hear_ready(pipes, child)
    assert child.exit_status == -signal.SIGKILL


def test_process__dies_with_us() -> None:
    """A kill -9 of the comparison leaves no daemon."""
    child = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    parent = f"""
import sys
from scripts.harness.process import Process
child = Process.start("it", command=[sys.executable, "-S", "-c", {child!r}])
print(child.process.stdout.readline().decode().strip(), flush=True)
import signal; signal.pause()"""
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child_pid = int(process.stdout.readline())
    pidfd = os.pidfd_open(child_pid)
    process.kill()
    process.communicate()
    ended, _, _ = select.select([pidfd], [], [], 10)
    os.close(pidfd)
    assert ended
