"""scripts.benches.cases.file: where the files go."""

from __future__ import annotations

from pathlib import Path

from scripts.benches.cases.file import file_system


def test_file_system__of_a_directory() -> None:
    assert file_system(Path("/proc")) == "proc"
    assert file_system(Path("/sys")) == "sysfs"
