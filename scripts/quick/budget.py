"""A plugin of pytest with xdist: no test starts after a time, and what did not run is told apart from what did.

The workers pass over tests. The controller sees what was collected and what is reported, and writes a tally as JSON.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

STOP_AT: Final = "QUICK_STOP_AT"
"""Variable of the environment: when to start no test any more, in seconds of the monotonic clock that all share."""
TALLY: Final = "QUICK_TALLY"
"""Variable of the environment: the file for the tally."""

_collected: set[str] = set()
_reported: set[str] = set()
_excluded = Counter[str]()
"""Tests that the markers exclude; each worker has collected everything, so that one count is that of all."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol() -> bool | None:
    return True if time.monotonic() > float(os.environ[STOP_AT]) else None


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    _excluded["tests"] += len(items)
    for item in items[:1]:
        item.config.workeroutput["excluded"] = _excluded["tests"]  # type: ignore[attr-defined] # xdist's


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: Sequence[str]) -> None:
    _collected.update(ids)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    _excluded["tests"] = getattr(node, "workeroutput", {}).get("excluded", 0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _reported.add(report.nodeid)


def pytest_terminal_summary() -> None:
    late = Counter("/".join(test.split("::")[0].split("/")[:-1][:3]) for test in _collected - _reported)
    tally = {"run": len(_reported), "excluded": _excluded["tests"], "late": late}
    Path(os.environ[TALLY]).write_text(json.dumps(tally))
