"""-v and -q of the daemons, and what systemd gets of them."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from srd.cli.log import NameFormatter, journal_reads_stderr, logging_to_stderr
from tests.patience import PATIENCE_S
from tests.srd.cli.processes import Called, Process, assert_fails, command, receives, srd


def recv(output: Path, *options: str) -> list[str]:
    return command(*receives(output, "--plain", "--json-lines", *options))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["send with", "a.bin: 5 bytes"]),
        (["-v"], ["send with", "a peer is here", "a.bin: 5 bytes"]),
    ],
)
def test_recv__levels(output: Path, inputs: Path, options: list[str], expected: list[str]) -> None:
    path = inputs / "a.bin"
    path.write_bytes(b"hello")
    argv = [each for each in recv(output, "--once", *options) if each != "--json-lines"]
    with Process(argv) as process:
        listening = process.stderr.next() or ""
        target = listening.partition("listening on ")[2].partition(",")[0]
        assert srd("send", str(path), target, "--plain").returncode == 0
        assert process.wait() == 0
        lines = process.stderr.all()[1:]
    assert all(line.startswith("srd recv: ") for line in lines)
    if lines[-1].endswith("the peer has ended"):  # the process may end before that
        lines.pop()
    assert [part for line, part in zip(lines, expected, strict=True) if part not in line] == []


def test_recv__quiet(output: Path, inputs: Path) -> None:
    path = inputs / "a.bin"
    path.write_bytes(b"hello")
    with Process(recv(output, "--once", "-q")) as process:
        port = process.event("listening")["port"]
        assert srd("send", str(path), f"127.0.0.1:{port}", "--plain").returncode == 0
        assert process.wait() == 0
        assert process.stderr.all() == []
        assert process.events()[-1]["event"] == "received", "events do not depend on the level"


def test_recv__quiet_still_warns(output: Path, inputs: Path) -> None:
    path = inputs / "a.bin"
    path.write_bytes(b"hello")
    (output / "a.bin").write_bytes(b"other")
    with Process(recv(output, "-q")) as process:
        port = process.event("listening")["port"]
        assert srd("send", str(path), f"127.0.0.1:{port}", "--plain").returncode == 1
        assert "a.bin" in (process.stderr.next() or "")


def test_levels__exclude_each_other_bad_flow(called: Called, output: Path) -> None:
    result = called(*receives(output, "-v", "-q"))
    assert_fails(result, status=2, error="--verbose and --quiet exclude each other")


def test_formatter__one_printable_line() -> None:
    record = logging.LogRecord("srd.x", logging.ERROR, "", 1, "%s\n\x1b[31m", ("a",), None)
    assert NameFormatter("srd recv", for_journal=False).format(record) == "srd recv: a\\n\\x1b[31m"
    assert NameFormatter("srd recv", for_journal=True).format(record) == "<3>srd recv: a\\n\\x1b[31m"
    error = ValueError("why")
    record = logging.LogRecord("srd.x", logging.WARNING, "", 1, "it failed", (), (ValueError, error, None))
    assert NameFormatter("x", for_journal=True).format(record) == "<4>x: it failed: ValueError: why"


def test_journal__only_its_own_stream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        status = os.fstat(stderr.fileno())
        for value, expected in [(f"{status.st_dev}:{status.st_ino}", True), ("1:2", False), ("", False)]:
            monkeypatch.setenv("JOURNAL_STREAM", value)
            assert journal_reads_stderr() is expected
    assert not journal_reads_stderr(), "it is closed"


def test_logging__a_stderr_without_a_reader_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    before = logging.getLogger("srd").level, [*logging.getLogger().handlers]
    stderr = os.fdopen(writer, "w")
    monkeypatch.setattr(sys, "stderr", stderr)
    with logging_to_stderr("x", level=logging.INFO):
        logging.getLogger("srd.y").info("hello")
    monkeypatch.undo()
    with pytest.raises(BrokenPipeError):
        stderr.close()
    assert before == (logging.getLogger("srd").level, logging.getLogger().handlers)


def test_recv__tells_systemd(output: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE_S)
        environment = [f"NOTIFY_SOCKET={tmp_path / 'notify'}", "WATCHDOG_USEC=200000"]
        with Process(["env", *environment, *recv(output)]) as process:
            port = process.event("listening")["port"]
            title = re.escape(f"READY=1\nSTATUS=listening on 127.0.0.1:{port}")
            assert re.fullmatch(title, systemd.recv(1000).decode())
            assert [systemd.recv(1000) for _ in range(3)] == [b"WATCHDOG=1"] * 3
            process.kill(signal.SIGTERM)
            while (state := systemd.recv(1000)) == b"WATCHDOG=1":
                pass
            assert state == b"STOPPING=1"
            assert process.wait() == 0
            assert json.dumps(process.events()) == "[]"
