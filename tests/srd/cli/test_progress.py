"""srd.cli.progress: rates in bits per second; a bar only on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest
from rich.progress import Progress

from srd.cli.progress import RateColumn, TransferProgress, rate_text
from tests.patience import PATIENCE_S
from tests.srd.cli.processes import command, receiver


@pytest.mark.parametrize(
    ("bits_per_s", "text"),
    [
        (0, "0 bit/s"),
        (999, "999 bit/s"),
        (1000, "1 kbit/s"),
        (1_250_000, "1.25 Mbit/s"),
        (999_000_000, "999 Mbit/s"),
        (1_000_000_000, "1.00 Gbit/s"),
        (123_456_000_000, "123.46 Gbit/s"),
    ],
)
def test_rate_text(bits_per_s: float, text: str) -> None:
    assert rate_text(bits_per_s) == text


def test_rate_column__nothing_before_there_is_a_rate() -> None:
    column = RateColumn()
    progress = Progress(column, disable=True)
    progress.add_task("x", total=10)
    (task,) = progress.tasks
    assert column.render(task).plain == ""
    task.finished_speed = 125_000_000
    assert column.render(task).plain == "1.00 Gbit/s"


@pytest.mark.parametrize("visible", [True, False])
def test_progress__silent_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str], *, visible: bool) -> None:
    progress = TransferProgress("a.bin", total_bytes=10, visible=visible)
    progress.add(5)
    progress.show(10)
    progress.close()
    progress.close()
    assert capsys.readouterr() == ("", "")


def test_progress__on_a_terminal_shows_name_and_rate(inputs: Path, output: Path) -> None:
    """Square brackets in a name are no markup."""
    file = inputs / "[red]a.bin"
    file.write_bytes(bytes(8 << 20))
    with receiver(output) as (_, target):
        here, there = pty.openpty()
        try:
            argv = command("send", str(file), target)
            environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "NO_COLOR": "1"}
            result = subprocess.run(
                argv, stdout=subprocess.PIPE, stderr=there, timeout=PATIENCE_S, check=True, env=environment
            )
            shown = os.read(here, 1 << 16).decode()
        finally:
            os.close(here)
            os.close(there)
    assert b" verified\n" in result.stdout
    assert "[red]a.bin" in shown
    assert "8.0/8.0 MiB" in shown
    assert "bit/s" in shown
