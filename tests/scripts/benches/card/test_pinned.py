"""scripts.benches.card.pinned: each end has processors of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from scripts.benches.card.pinned import halves, pinned
from scripts.harness.two_hosts import RECEIVER, SENDER
from tests.scripts.benches.card.loopback import loopback_pair


@pytest.mark.parametrize(
    ("processors", "expected"),
    [([7], ([7], [7])), ([0, 1], ([0], [1])), ([0, 2, 3], ([0], [2, 3])), ([0, 1, 2, 3], ([0, 1], [2, 3]))],
)
def test_halves(processors: list[int], expected: tuple[list[int], list[int]]) -> None:
    assert halves(processors) == expected


@pytest.mark.root  # chrt
def test_pinned__its_processes_have_them() -> None:
    pair = pinned(loopback_pair())
    script = "import os; print(sorted(os.sched_getaffinity(0)))"
    found = [
        subprocess.run(pair.command(node, [sys.executable, "-c", script]), capture_output=True, text=True, check=True)
        for node in (SENDER, RECEIVER)
    ]
    assert [each.stdout.strip() for each in found] == [str(half) for half in halves(sorted(os.sched_getaffinity(0)))]
