"""nitro_emu.sd_notify: what systemd would receive."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from nitro_emu.sd_notify import sd_notify


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_state_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    name = str(tmp_path / "notify") if kind == "path" else f"@nitro-test-{os.getpid()}"
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
