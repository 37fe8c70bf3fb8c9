"""A file's cell on loopback: scripted ends, and TCP's tool."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from netns.compare import faults, transfer
from netns.compare.grid import Condition
from netns.compare.outcome import Outcome, State
from netns.compare.payload import Payload, prepared
from netns.compare.progress import Progress
from netns.compare.traffic import File, Flow
from netns.compare.transfer import Transfer
from netns.lab.lab import Lab
from netns.topology.model import reference

SIZE_BYTES = 1 << 20
CLEAN, BLACKHOLE = Condition({}), Condition({}, busiest_link_fails_at=0.4)
LISTEN = "emit('listening', port=1)\n"
LAND = "shutil.copy(source, output)\nemit('received', bytes=1, seconds=0.5, longest_stall_ms=3.0)\n"
SENT = "emit('sent', bytes=1, seconds=0.75, verified=True, retransmitted_fraction=0.1)\n"
PRELUDE = """import json, pathlib, shutil, signal, sys
def emit(kind, **fields): print(json.dumps({'event': kind, **fields}), flush=True)
"""

Run = Callable[..., Outcome]


class Loopback:
    """A lab of which both hosts are this machine; its second spine carries three quarters."""

    topology = reference()
    backend = "loopback"

    def __init__(self) -> None:
        self._readings = 0

    def address(self, _host: str) -> str:
        return "127.0.0.1"

    def pinned_addresses(self, _host: str) -> Mapping[str, str]:
        return dict.fromkeys(self.topology.spines, "127.0.0.1")

    def command(self, _host: str, command: Sequence[str]) -> list[str]:
        return list(command)

    def relay_status(self) -> None:
        return None

    def counters(self) -> dict[str, Any]:
        count, self._readings = 100 * self._readings, self._readings + 1
        weights = {"leaf1-spine1": 1, "leaf1-spine2": 3}
        return {
            link.name: {"ab": {"bytes": weights.get(link.name, 0) * count}, "ba": {"bytes": 0}}
            for link in self.topology.links
        }


@pytest.fixture
def payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Payload:
    """A MiB of random bytes, and the directory that receives it."""
    monkeypatch.setattr("netns.compare.payload.TMPFS", tmp_path)
    source, output = tmp_path / "file.bin", tmp_path / "landed"
    with prepared(File(SIZE_BYTES)) as made:
        source.write_bytes(made.source.read_bytes())
    output.mkdir()
    return Payload(source, SIZE_BYTES, sha256=made.sha256, output=output)


@pytest.fixture
def seen() -> list[Progress]:
    return []


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The links that were made to fail."""
    links: list[str] = []
    monkeypatch.setattr(faults, "fail", lambda _lab, link: links.append(link))
    return links


@pytest.fixture
def run(payload: Payload, seen: list[Progress]) -> Run:
    def go(*, transport: str = "cubic", condition: Condition = CLEAN, timeout_s: float = 20.0) -> Outcome:
        return Transfer(
            cast("Lab", Loopback()),
            transport=transport,
            flow=Flow("h1", "h2", SIZE_BYTES),
            payload=payload,
            condition=condition,
            timeout_s=timeout_s,
            on_progress=seen.append,
        ).run()

    return go


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, payload: Payload) -> Callable[[str, str], None]:
    """Make the two ends Python scripts, in which `source` and `output` are defined."""

    def command(script: str) -> list[str]:
        given = f"source, output = {str(payload.source)!r}, {str(payload.output)!r}\n"
        return [sys.executable, "-S", "-c", PRELUDE + given + script]

    def make(receiver: str, sender: str) -> None:
        monkeypatch.setattr(transfer, "receive_command", lambda *_, **__: command(receiver))
        monkeypatch.setattr(transfer, "send_command", lambda *_, **__: command(sender))

    return make


@pytest.mark.root  # TCP: a kernel may allow only root to choose cubic
def test_transfer__tcps_tool(run: Run, seen: list[Progress]) -> None:
    outcome = run()
    assert outcome.state is State.OK, outcome.reason
    assert outcome.size_bytes == SIZE_BYTES
    assert outcome.progress[0] == (0.0, 0)
    assert outcome.progress[-1][1] == SIZE_BYTES
    assert outcome.path_shares == {"spine1": 0.25, "spine2": 0.75, "spine3": 0.0, "spine4": 0.0}
    assert seen[0].total_bytes == SIZE_BYTES


def test_transfer__scripted_success(run: Run, scripted: Callable[[str, str], None]) -> None:
    scripted(LISTEN + LAND, SENT)
    outcome = run()
    assert outcome.state is State.OK, outcome.reason
    assert (outcome.seconds, outcome.longest_stall_ms, outcome.resent_fraction) == (0.75, 3.0, 0.1)


def test_transfer__claimed_but_never_landed_bad_flow(run: Run, scripted: Callable[[str, str], None]) -> None:
    scripted(LISTEN + LAND.replace("shutil.copy(source, output)", ""), SENT)
    assert run().reason == "the received file differs from the one that was sent"


def test_transfer__busiest_link_fails_at_the_share(
    run: Run, scripted: Callable[[str, str], None], failed: list[str], seen: list[Progress]
) -> None:
    events = "".join(f"emit('progress', seconds={at}, bytes={int(at * SIZE_BYTES)})\n" for at in (0.1, 0.39, 0.41, 0.8))
    scripted(LISTEN + events + LAND, SENT)
    outcome = run(condition=BLACKHOLE)
    assert outcome.state is State.OK, outcome.reason
    assert failed == ["leaf1-spine2"]
    ((_, what),) = outcome.events
    assert what == "fail leaf1-spine2, which had carried most"
    assert [each.event for each in seen] == ["", "", what, what]


def test_transfer__a_condition_that_came_too_late_is_noted(run: Run, scripted: Callable[[str, str], None]) -> None:
    scripted(LISTEN + "emit('progress', seconds=0.1, bytes=1)\n" + LAND, SENT)
    outcome = run(condition=BLACKHOLE)
    assert (outcome.state, outcome.note) == (State.OK, "all had arrived before the link failed")


def test_transfer__hanging_is_stopped_at_the_timeout(run: Run, scripted: Callable[[str, str], None]) -> None:
    half = f"emit('progress', seconds=0.0, bytes={SIZE_BYTES // 2})\n"
    stop = "signal.signal(signal.SIGTERM, lambda *_: (emit('stopped', retransmitted_fraction=0.5), sys.exit()))\n"
    scripted(LISTEN + half + "signal.pause()", stop + "signal.pause()")
    outcome = run(timeout_s=0.3)
    assert (outcome.state, outcome.reason) == (State.TIMEOUT, "stopped after 0.3 s with 50 % received")
    assert (outcome.seconds, outcome.size_bytes, outcome.elapsed_s) == (None, SIZE_BYTES // 2, 0.3)
    assert 250 <= (outcome.longest_stall_ms or 0) <= 300
    assert outcome.resent_fraction == 0.5


@pytest.mark.parametrize(
    ("receiver", "sender", "reason"),
    [
        ("sys.exit('cannot bind')", SENT, "h2: cannot bind"),
        (LISTEN + "signal.pause()", "sys.exit('srd: no route')", "srd: no route"),
        (LISTEN + "sys.exit('disk full')", "signal.pause()", "disk full"),
        (LISTEN + "sys.exit(3)", SENT, "the receiver ended with status 3 and reported no file"),
    ],
)
def test_transfer__bad_flow(
    run: Run,
    scripted: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    receiver: str,
    sender: str,
    reason: str,
) -> None:
    monkeypatch.setattr(transfer, "_EXIT_WITHIN_S", 0.2)  # where the other never ends
    scripted(receiver, sender)
    outcome = run()
    assert (outcome.state, outcome.seconds, outcome.reason) == (State.FAILED, None, reason)


def test_transfer__no_first_byte_bad_flow(
    run: Run, scripted: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "FIRST_BYTE_WITHIN_S", 0.2)
    scripted(LISTEN + "signal.pause()", "signal.pause()")
    outcome = run()
    assert outcome.reason == "nothing arrived within 0.2 s"
    assert (outcome.goodput_bps, outcome.elapsed_s) == (0.0, 0.0)


def test_transfer__deaf_receiver_bad_flow(
    run: Run, scripted: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "LISTEN_WITHIN_S", 0.2)
    scripted("signal.pause()", SENT)
    assert run().reason == "h2: not listening within 0.2 s"


def test_commands__of_each_transport(tmp_path: Path) -> None:
    def send(transport: str) -> str:
        return " ".join(transfer.send_command(transport, source=tmp_path, to="10.0.2.1:5", bind="10.1.1.1"))

    assert f"-P -m srd send {tmp_path} 10.0.2.1:5 " in send("srd")
    assert send("bbr").endswith(f"srd.workload.tcp_file send {tmp_path} 10.0.2.1:5 --algorithm bbr")
    assert send("mptcp").endswith("--algorithm cubic --mptcp --bind 10.1.1.1")
    for transport in ("srd", "cubic", "bbr", "mptcp"):
        assert "--listen 10.0.2.1:0" in " ".join(
            transfer.receive_command(transport, address="10.0.2.1", output=tmp_path)
        )
