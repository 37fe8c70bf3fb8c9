"""netns.programs: where a program is, or which package has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from netns.backends.kernel.netlink import run_tool
from netns.errors import BackendError
from netns.programs import tool


def test_tool__bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendError, match=r"^nosuch: no such command; install the package that has it, or give its"):
        tool("nosuch")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(BackendError, match=r"^ping: not installed; install the package iputils-ping$"):
        tool("ping")
    with pytest.raises(BackendError, match=r"^ethtool: not installed; install the package ethtool$"):
        run_tool("ethtool", "-k", "lo")


def test_tool__is_found_without_sbin_in_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert tool("ip").endswith("/ip")
    assert Path(tool("tc")).is_absolute()
