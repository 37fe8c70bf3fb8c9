"""What a machine is, and how busy it was."""

from __future__ import annotations

import platform

import pytest

from netns.observe.machine import Ticks, first_line, machine


def test_ticks__reads_the_sum_of_all_cpus() -> None:
    stat = "cpu  10 1 5 80 4 2 3 1 9 9\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 5\n"
    assert Ticks.parse(stat) == Ticks(busy=21, stolen=1, total=106)


def test_machine__describes_this_one() -> None:
    found = machine()
    assert found["kernel"] == platform.release()
    assert found["python"] == platform.python_version()
    assert isinstance(found["cpu_count"], int)
    assert all(found.values())


def test_machine__what_cannot_be_found_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert first_line("git", "describe") == "unknown"
