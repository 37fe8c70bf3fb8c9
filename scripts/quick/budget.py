"""A plugin of pytest: no test starts after a time, and what did not run is told apart from what did.

It is for pytest-xdist: the workers pass over tests, and the controller, which sees what was collected and what is
reported, writes the tally as a JSON object.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

STOP_AT: Final = "QUICK_STOP_AT"
"""Variable of the environment: when to start no test any more, in seconds of the monotonic clock that all share."""
TALLY: Final = "QUICK_TALLY"
"""Variable of the environment: the file for the tally."""

_collected: set[str] = set()
_reported: set[str] = set()
_deselected = [0]
"""What the markers exclude: each worker has collected everything, so the last one's is that of all."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol() -> bool | None:
    """Pass over the test when the time has passed."""
    return True if time.monotonic() > float(os.environ[STOP_AT]) else None


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count, for the controller, which collects nothing."""
    _deselected[0] += len(items)
    if items and hasattr(items[0].config, "workeroutput"):
        items[0].config.workeroutput["deselected"] = _deselected[0]


@pytest.hookimpl(optionalhook=True)  # of xdist, as the next
def pytest_xdist_node_collection_finished(ids: Sequence[str]) -> None:
    """Keep what is to run."""
    _collected.update(ids)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Keep what a worker has counted."""
    _deselected[0] = getattr(node, "workeroutput", {}).get("deselected", 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what ran."""
    _reported.add(report.nodeid)


def pytest_terminal_summary() -> None:
    """Write how many tests ran, and how many of which folder did not."""
    late = Counter(str(PurePosixPath(test.split("::")[0]).parent) for test in _collected - _reported)
    tally = {"run": len(_reported), "deselected": _deselected[0], "late": late}
    Path(os.environ[TALLY]).write_text(json.dumps(tally))
