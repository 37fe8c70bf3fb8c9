"""scripts/demo_card.py as a process, as a user runs it: a lab, two cards, four tenants."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.patience import PATIENCE_S

ROOT: Final = Path(__file__).resolve().parents[3]
PROGRAM: Final = """
import sys
from scripts.card_demo import run
run.LAB_NAME = sys.argv.pop(1)  # a user's demonstration may be running under the default name
sys.exit(run.main())
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, f"cd-{os.getpid()}", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=PATIENCE_S, cwd=ROOT
    )


@pytest.mark.root
def test_demo_card__tenants_see_every_byte_over_a_lossy_fabric() -> None:
    done = run("--share", "0.03", "--loss", "2")
    assert done.returncode == 0, done.stderr
    assert "4 paths, 2 % loss on each spine" in done.stdout
    for tenant, work in (("red", "efa_0: 600 SENDs of 1 KiB"), ("blue", "efa_1: 2 RDMA WRITEs of 1 MiB")):
        assert re.search(rf"{tenant} +{work} .* 0 *$", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"card-h1 +efa_0", done.stdout)


def test_demo_card__bad_usage_is_one_line() -> None:
    done = run("--loss", "much")
    assert done.returncode == 2
    assert done.stderr.startswith("demo-card: ")
    assert len(done.stderr.splitlines()) == 1
