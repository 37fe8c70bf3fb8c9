"""srd.cli.options: file names that the system refuses, and a cancellation that is not a signal's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from srd.cli.options import is_directory, is_file, run


def test_is_file_and_is_directory__distinguish(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"")
    assert (is_file(file), is_directory(file)) == (True, False)
    assert (is_file(tmp_path), is_directory(tmp_path)) == (False, True)
    for impossible in (tmp_path / "gone", tmp_path / ("x" * 300), file / "below"):
        assert (is_file(impossible), is_directory(impossible)) == (False, False)


def test_run__a_cancellation_without_a_signal_is_passed_on() -> None:
    async def main() -> int:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(main())
