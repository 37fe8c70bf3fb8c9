from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from netns.backends.relay.client import request, start_relay
from netns.errors import BackendError
from netns.netem.shape import Shape
from netns.processes import start_time_ticks
from tests.patience import wait_until
from tests.programs import run_to_end

if TYPE_CHECKING:
    from tests.netns.backends.conftest import TapPair


def test_request__the_relay_ends_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "relay.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(100)
            connection.send(b'{"half')
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(BackendError, match="ended without an answer"):
            request(path, {"op": "counters"})
        thread.join()


@pytest.mark.root
def test_start_relay__runs_in_its_own_session_and_replies(pair: TapPair) -> None:
    pid = pair.relay()
    assert os.getsid(pid) == pid, "a terminal's Ctrl-C does not reach it"
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    answer = request(pair.control, {"op": "counters"})
    assert answer["pid"] == pid
    assert set(answer) == {"pid", "links", "cpu_seconds", "late_mean_us", "late_total_us", "late_max_us", "tap_drops"}
    assert set(answer["links"]["a-b"]) == {"ab", "ba"}
    assert pair.stop(pid)


@pytest.mark.root
def test_request__refused_by_the_relay(pair: TapPair) -> None:
    pair.relay()
    shape = Shape().to_dict()
    for message, error in (
        ({"op": "dance"}, "no such request"),
        ({"op": "set", "link": "a-b"}, "no such request"),
        ({"op": "set", "link": "a-c", "direction": "ab", "shape": shape}, "no such link and direction: a-c ab"),
        ({"op": "set", "link": "a-b", "direction": "up", "shape": shape}, "no such link and direction: a-b up"),
        ({"op": "set", "link": "a-b", "direction": "ab", "shape": shape | {"loss_percent": 120}}, "loss: 120 %"),
    ):
        with pytest.raises(BackendError, match=error):
            request(pair.control, message)


@pytest.mark.root
def test_start_relay__bad_flow(pair: TapPair) -> None:
    log = pair.directory / "relay.log"
    with pytest.raises(BackendError, match=r"none\.json: No such file"):
        start_relay(pair.directory / "none.json", log_path=log)
    spec = pair.spec()
    spec.write_text(spec.read_text().replace("tap0", "tap7"))
    with pytest.raises(BackendError, match=f"^relay: {pair.a}: there is no interface tap7$"):
        start_relay(spec, log_path=log)
    pair.relay()
    with pytest.raises(BackendError, match="another process holds it"):
        start_relay(pair.spec(), log_path=log)


KILLED_BEFORE_IT_KNOWS = """
import os, signal, sys
from pathlib import Path
from netns.backends.relay.client import start_relay
def record(pid):
    print(pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
start_relay(Path(sys.argv[1]), log_path=Path(sys.argv[2]), record=record)
"""


@pytest.mark.root
def test_start_relay__unrecorded_relay_ends(pair: TapPair) -> None:
    log = pair.directory / "relay.log"
    done = run_to_end([sys.executable, "-c", KILLED_BEFORE_IT_KNOWS, str(pair.spec()), str(log)])
    assert done.returncode == -signal.SIGKILL
    pair.relay()  # the devices and the socket are free
    wait_until(lambda: start_time_ticks(int(done.stdout)) is None)
    assert log.read_text() == ""


@pytest.mark.root
def test_start_relay__records_first(pair: TapPair) -> None:
    recorded: list[tuple[int, bool]] = []
    spec, log = pair.spec(), pair.directory / "relay.log"
    pid = start_relay(spec, log_path=log, record=lambda pid: recorded.append((pid, pair.control.exists())))
    pair.note(pid)
    assert recorded == [(pid, False)]


@pytest.mark.root
def test_start_relay__without_a_reply_is_stopped(pair: TapPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netns.backends.relay.client.START_SECONDS", 0)
    with pytest.raises(BackendError, match="the relay does not begin"):
        start_relay(pair.spec(), log_path=pair.directory / "relay.log")
    monkeypatch.undo()
    pair.relay()  # the devices are free


@pytest.mark.root
def test_start_relay__interrupted_wait_stops_it(pair: TapPair, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def interrupted(_control_path: Path, *, pid: int) -> bool:
        started.append(pid)
        raise KeyboardInterrupt

    monkeypatch.setattr("netns.backends.relay.client._answers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_relay(pair.spec(), log_path=pair.directory / "relay.log")
    assert start_time_ticks(started[0]) is None


@pytest.mark.root
def test_start_relay__a_stopped_relay_is_killed_and_started_again(
    pair: TapPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netns.processes.GRACE_SECONDS", 0.1)
    pid = pair.relay()
    os.kill(pid, signal.SIGSTOP)
    assert pair.stop(pid)
    assert pair.control.is_socket(), "it had no time to tidy up"
    pair.relay()
    assert pair.counters()["packets"] == 0
