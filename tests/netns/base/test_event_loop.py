"""netns.base.event_loop: commands run with and without uvloop."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.programs import run_to_end

SEND = """
import sys
{without}
sys.argv = ["srd", "send", sys.argv[1], "127.0.0.1:9", "--retry-for", "0"]
from srd.command import main
main()
"""


@pytest.mark.parametrize("without", ["", "sys.modules['uvloop'] = None"], ids=["with", "without"])
def test_run__needs_no_uvloop(tmp_path: Path, without: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x")
    done = run_to_end([sys.executable, "-c", SEND.format(without=without), str(file)])
    assert (done.returncode, "127.0.0.1:9: nothing listens there" in done.stderr) == (1, True), done.stderr
