from __future__ import annotations

import platform

import pytest

from scripts.harness import environment


def test_environment__describes_this_machine() -> None:
    found = environment.environment()
    assert found["kernel"] == platform.release()
    assert found["python"] == platform.python_version()
    assert isinstance(found["cpu_count"], int)
    assert all(found.values())


def test_environment__what_cannot_be_found_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert environment._first_line("git", "describe") == "unknown"
    assert environment._version("no-such-package-here") == "not installed"
