"""The TCP tool as users run it: two processes, events on stdout, one line on stderr, exit statuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from srd.perf.tcp_socket import CUBIC, why_unavailable
from srd.workload.tcp_file.header import Header, send_record
from tests.patience import PATIENCE_S

TOOL: Final = [sys.executable, "-m", "srd.workload.tcp_file"]
Process = subprocess.Popen[str]
CUBIC_IS_ROOTS: Final = pytest.mark.root
"""The tool's default: a kernel may allow only root to choose it."""


def start(*arguments: str) -> Process:
    return subprocess.Popen([*TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_receiver(output: Path, *options: str) -> tuple[Process, str]:
    """A receiver that listens, and its HOST:PORT."""
    process = start("receive", "--listen", "127.0.0.1:0", "--output", str(output), *options)
    assert process.stdout is not None
    event = json.loads(process.stdout.readline())
    assert event["event"] == "listening"
    return process, f"{event['address']}:{event['port']}"


def last_event(text: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(text.splitlines()[-1])
    return event


@pytest.mark.parametrize("size", [0, 1, 3_000_001])
@pytest.mark.parametrize("options", [pytest.param((), marks=CUBIC_IS_ROOTS), ("--algorithm", "reno"), ("--mptcp",)])
def test_transfer__the_file_lands_verified(tmp_path: Path, size: int, options: tuple[str, ...]) -> None:
    if "--mptcp" in options and (reason := why_unavailable(algorithm=CUBIC, mptcp=True)):
        pytest.skip(reason)
    source, output = tmp_path / "f.bin", tmp_path / "out"
    source.write_bytes(os.urandom(size))
    output.mkdir()
    receiver, address = start_receiver(output, *options)
    sender = start("send", str(source), address, *options)
    sent, errors = sender.communicate(timeout=PATIENCE_S)
    assert (sender.returncode, errors) == (0, "")
    received, errors = receiver.communicate(timeout=PATIENCE_S)
    assert (receiver.returncode, errors) == (0, "")
    assert (output / "f.bin").read_bytes() == source.read_bytes()
    assert os.listdir(output) == ["f.bin"]  # noqa: PTH208  names, hidden ones included
    sent_event, received_event = last_event(sent), last_event(received)
    assert (sent_event["event"], sent_event["bytes"], sent_event["verified"]) == ("sent", size, True)
    assert (received_event["event"], received_event["bytes"], received_event["digest"]) == (
        "received",
        size,
        sent_event["digest"],
    )
    assert received_event["seconds"] <= sent_event["seconds"]


@CUBIC_IS_ROOTS
def test_receive__sender_vanishes_bad_flow(tmp_path: Path) -> None:
    receiver, address = start_receiver(tmp_path)
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as sock:
        send_record(sock, Header(name="f", byte_count=100, sha256="00" * 32))
        sock.sendall(bytes(30))
    _, errors = receiver.communicate(timeout=PATIENCE_S)
    assert receiver.returncode == 1
    assert errors == "tcp_file: the sender closed the connection after 30 of 100 bytes\n"
    assert list(tmp_path.iterdir()) == []


@CUBIC_IS_ROOTS
def test_receive__other_bytes_than_announced_bad_flow(tmp_path: Path) -> None:
    receiver, address = start_receiver(tmp_path)
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as sock:
        send_record(sock, Header(name="f", byte_count=3, sha256="00" * 32))
        sock.sendall(b"abc")
        assert b'"sha256_ok": false' in sock.recv(4096)
    _, errors = receiver.communicate(timeout=PATIENCE_S)
    assert receiver.returncode == 1
    assert errors.startswith("tcp_file: f: SHA-256 is ba7816bf")
    assert list(tmp_path.iterdir()) == []


@CUBIC_IS_ROOTS
def test_send__stopped_reports_progress(tmp_path: Path) -> None:
    source = tmp_path / "f.bin"
    source.write_bytes(bytes(50_000_000))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = start("send", str(source), f"127.0.0.1:{listener.getsockname()[1]}")
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(10)  # now it is sending, and the receiver has stopped reading
            sender.send_signal(signal.SIGTERM)
            out, errors = sender.communicate(timeout=PATIENCE_S)
    assert (sender.returncode, errors) == (0, "")
    assert last_event(out)["event"] == "stopped"
    assert 0 <= last_event(out)["retransmitted_fraction"] <= 1


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (("send", "nowhere.bin", "127.0.0.1:1"), 1, "nowhere.bin: No such file"),
        pytest.param(("send", __file__, "127.0.0.1:1"), 1, "127.0.0.1:1: Connection refused", marks=CUBIC_IS_ROOTS),
        (("send", __file__, "127.0.0.1:1", "--algorithm", "teleport"), 1, "'teleport'"),
        (("send", __file__, "127.0.0.1"), 2, "'127.0.0.1' is not HOST:PORT"),
        (("send", __file__, "127.0.0.1:70000"), 2, "70000"),
        (("receive", "--listen", "127.0.0.1:0", "--output", "/nonexistent"), 2, "/nonexistent"),
        pytest.param(
            ("receive", "--listen", "192.0.2.1:0", "--output", "."),
            1,
            "192.0.2.1:0: Cannot assign",
            marks=CUBIC_IS_ROOTS,
        ),
    ],
)
def test_errors__one_line_and_the_right_status(arguments: tuple[str, ...], status: int, named: str) -> None:
    process = start(*arguments)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status
    assert named in errors.splitlines()[-1]
    assert "Traceback" not in errors
