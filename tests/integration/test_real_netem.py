"""The kernel's netem, under User-Mode Linux where the host's kernel has none: our orders to it, and our model of it.

`scripts/bench fidelity` is the long form of the second half: more packets, more settings, confidence.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from netns.backends.kernel.capabilities import missing_netem
from netns.backends.uml import run_uml
from scripts.benches.cases.fidelity import compared, record
from scripts.benches.fidelity.settings import SETTINGS, Setting, write_tables

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PACKETS = 2000
TRIED = (
    "delay", "delay-normal", "delay-table", "loss-10", "loss-gilbert", "loss-state-4", "duplicate-loss", "corrupt",
    "reorder", "gap", "ecn", "rate-cells", "limit", "slot-distribution",
)  # fmt: skip
ALPHA = 1e-5  # 30 tests a run: fails by chance once in 3,000 runs


def test_orders__in_the_guest(tmp_path: Path) -> None:
    """Everything that is marked netem."""
    command = [
        sys.executable, "-m", "pytest", "-q", "--color", "no", "-p", "no:cacheprovider", "-m", "netem",
        "--timeout", "400",
        "tests/netns/backends/kernel/test_capabilities_netem.py", "tests/netns/faults/test_faults.py",
    ]  # fmt: skip
    with (tmp_path / "log").open("w+b") as log:
        if missing_netem() is None:
            status = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False).returncode
        else:
            status = run_uml(command, stdout=log, stderr=log, repeatable=True)
    text = (tmp_path / "log").read_text()
    assert status == 0, text
    assert " passed" in text
    assert "skipped" not in text


def test_relay__does_what_netem_does(tmp_path: Path) -> None:
    write_tables(tmp_path)
    chosen = [_short(each) for each in SETTINGS if each.name in TRIED]
    assert len(chosen) == len(TRIED)
    kernel, relay = (record(chosen, fabric=fabric, directory=tmp_path) for fabric in ("kernel", "relay"))
    failed = {
        setting.name: comparison
        for setting in chosen
        for comparison in compared(setting, kernel=kernel[setting.name], relay=relay[setting.name], directory=tmp_path)
        if comparison.p_value is not None and comparison.p_value < ALPHA
    }
    assert not failed


def _short(setting: Setting) -> Setting:
    return Setting(
        setting.name,
        setting.arguments,
        setting.measures,
        interval_us=setting.interval_us,
        length_bytes=setting.length_bytes,
        packets=PACKETS,
    )
