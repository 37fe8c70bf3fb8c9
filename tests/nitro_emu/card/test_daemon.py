"""nitro_emu.card.daemon: a card's process, from its start to each of its ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from nitro_emu.card.control import ask
from nitro_emu.card.daemon import DRAIN_TIMEOUT_S
from tests.nitro_emu.processes import FAKE_CARD, card_file, fake_card
from tests.patience import PATIENCE_S
from tests.srd.cli.processes import Process

SIGNALS = [signal.SIGTERM, signal.SIGINT]
DRAINING = f"draining for {DRAIN_TIMEOUT_S} s"


def assert_ends(process: Process, *, status: int) -> str:
    """The exit status; return the last line on stderr."""
    assert process.wait() == status
    return process.stderr.all()[-1]


@pytest.mark.parametrize("number", SIGNALS)
def test_card_serves_until_a_signal_drains_it(tmp_path: Path, number: signal.Signals) -> None:
    with fake_card(card_file(tmp_path)) as card:
        assert card.stdout.next() == f"nitro-card: card serves VFs efa_0 in {tmp_path / 'run'}"
        assert ask(tmp_path / "run", "status")["name"] == "card"
        records = ask(tmp_path / "run", "logs")["records"]
        assert [record["message"] for record in records] == ["started"]
        card.kill(number)
        assert card.stdout.next() == DRAINING
        assert assert_ends(card, status=0).endswith("nitro_emu.device: closed")
    assert {path.name for path in tmp_path.iterdir()} == {"card.yaml", "audit.log"}


def test_second_signal_ends_the_card_at_once(tmp_path: Path) -> None:
    with fake_card(card_file(tmp_path), behaviour="drains for ever") as card:
        card.stdout.next()
        card.kill(signal.SIGTERM)
        assert card.stdout.next() == DRAINING
        card.kill(signal.SIGTERM)
        assert assert_ends(card, status=1).endswith("closed")
    assert not (tmp_path / "run").exists()


def test_signal_during_the_start(tmp_path: Path) -> None:
    with fake_card(card_file(tmp_path), behaviour="starts for ever") as card:
        assert card.stdout.next() == "starting"
        card.kill(signal.SIGTERM)
        assert_ends(card, status=0)
        assert card.stdout.all() == ["starting"]
    assert not (tmp_path / "run").exists()


def test_card_that_fails_ends_its_process(tmp_path: Path) -> None:
    with fake_card(card_file(tmp_path), behaviour="fails later") as card:
        assert assert_ends(card, status=1) == "nitro-card: card: efa_0: the engine has failed"
    assert not (tmp_path / "run").exists()


def test_requests_that_do_not_end_are_logged(tmp_path: Path) -> None:
    with fake_card(card_file(tmp_path), behaviour="drains in part") as card:
        card.stdout.next()
        card.kill(signal.SIGTERM)
        assert_ends(card, status=0)
        assert any("requests are still open after 10.0 s" in line for line in card.stderr.all())


@pytest.mark.parametrize(
    ("behaviour", "line"),
    [
        ("refuses", "nitro-card: efa_0: the address is not of this host\\x1b[2J"),
        ("crashes", "nitro-card: card: internal error: ZeroDivisionError: in the card"),
    ],
)
def test_failed_start_is_one_line(tmp_path: Path, behaviour: str, line: str) -> None:
    with fake_card(card_file(tmp_path, more="log_level: warning"), behaviour=behaviour) as card:
        assert_ends(card, status=1)
        assert card.stderr.all() == [line]
        assert card.stdout.all() == []
    assert not (tmp_path / "run").exists()


def test_crash_in_the_drain_is_one_line(tmp_path: Path) -> None:
    with fake_card(card_file(tmp_path, more="log_level: warning"), behaviour="crashes in drain") as card:
        card.stdout.next()
        card.kill(signal.SIGTERM)
        assert_ends(card, status=1)
        assert card.stderr.all() == ["nitro-card: card: internal error: ZeroDivisionError: in the drain"]


def test_debug_log_has_the_traceback_of_a_crash(tmp_path: Path) -> None:
    with fake_card(card_file(tmp_path, more="log_level: debug"), behaviour="crashes") as card:
        assert_ends(card, status=1)
        assert any(line.startswith("Traceback") for line in card.stderr.all())


def test_second_card_in_a_run_directory_is_refused(tmp_path: Path) -> None:
    with fake_card(card_file(tmp_path)) as first:
        first.stdout.next()
        with fake_card(card_file(tmp_path)) as second:
            assert "run: a card serves it already; stop it" in assert_ends(second, status=1)
        assert ask(tmp_path / "run", "status")["name"] == "card"


def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0nitro-test-{os.getpid()}")
        systemd.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@nitro-test-{os.getpid()}")
        with fake_card(card_file(tmp_path)) as card:
            assert systemd.recv(1000).startswith(b"READY=1\nSTATUS=nitro-card: card serves")
            card.kill(signal.SIGTERM)
            assert systemd.recv(1000) == b"STOPPING=1"
            assert_ends(card, status=0)


def test_json_has_ready_line_and_log_as_json(tmp_path: Path) -> None:
    with fake_card(card_file(tmp_path), options=["--json-lines"]) as card:
        ready = {"event": "ready", "name": "card", "vfs": ["efa_0"], "run_dir": str(tmp_path / "run")}
        assert card.event("ready") == ready
        card.kill(signal.SIGTERM)
        card.wait()
        assert json.loads(card.stderr.all()[0])["message"] == "started"


def test_metrics_are_served_over_http(tmp_path: Path) -> None:
    with fake_card(card_file(tmp_path, more='metrics: "127.0.0.1:0"')) as card:
        card.stdout.next()
        address = card.line("metrics at http://").split("/")[2]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as page:
            assert b'efa_tx_bytes_total{vf="efa_0"} 0.0' in page.read()
        card.kill(signal.SIGTERM)
        assert_ends(card, status=0)


def test_ready_line_that_nobody_can_read_ends_the_card(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        argv = [sys.executable, str(FAKE_CARD), str(card_file(tmp_path, more="log_level: warning")), "well"]
        ended = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "nitro-card: stdout: cannot be written to: No space left on device\n"
