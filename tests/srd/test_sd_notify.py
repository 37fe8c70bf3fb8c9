"""srd.sd_notify: what systemd would receive."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from srd.sd_notify import notifying_systemd, sd_notify, watchdog_s
from tests.patience import PATIENCE_S


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_state_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    name = str(tmp_path / "notify") if kind == "path" else f"@srd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name.replace("@", "\0"))
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        sd_notify("READY=1")
        assert systemd.recv(100) == b"READY=1"


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    sd_notify("READY=1")
    assert not caplog.records


def test_failure_is_logged_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (str(tmp_path / "missing"), "x" * 200):
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        sd_notify("READY=1")
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        yield systemd


async def test_notifying_systemd__without_a_watchdog(systemd: socket.socket) -> None:
    async with notifying_systemd("listening"):
        assert systemd.recv(100) == b"READY=1\nSTATUS=listening"
    assert systemd.recv(100) == b"STOPPING=1"


async def test_notifying_systemd__feeds_the_watchdog(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    before = asyncio.all_tasks()
    async with notifying_systemd("listening"):
        assert systemd.recv(100).startswith(b"READY=1")
        for _ in range(3):
            assert await asyncio.to_thread(systemd.recv, 100) == b"WATCHDOG=1"
    while (state := systemd.recv(100)) == b"WATCHDOG=1":
        pass
    assert state == b"STOPPING=1"
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    ("microseconds", "process", "expected"),
    [("", "", None), ("0", "", None), ("x", "", None), ("-5", "", None), ("2500000", "", 2.5), ("2500000", "1", None)],
)
def test_watchdog_s(monkeypatch: pytest.MonkeyPatch, microseconds: str, process: str, expected: float | None) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", microseconds)
    monkeypatch.setenv("WATCHDOG_PID", process)
    assert watchdog_s() == expected
