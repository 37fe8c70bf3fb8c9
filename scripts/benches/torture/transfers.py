"""Checks that both ends of file transfers agree, and compares the files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scripts.benches.torture.files import FILES, received_directory
from scripts.benches.torture.journal import entries
from scripts.benches.torture.layout import journal_name
from scripts.benches.torture.pattern import check
from scripts.benches.torture.plans import Scenario
from scripts.benches.torture.result import Result


def check_files(scenario: Scenario, directory: Path, result: Result) -> None:
    """Compare what was received with what was sent, and with what both ends recorded."""
    sent: dict[int, str] = {}
    sizes: dict[int, int] = {}
    for worker in (0, 1):
        for entry in entries(directory / journal_name(worker, incarnation=0)):
            if entry.kind == "file":
                sizes[entry.values[0]] = entry.values[1]
                result.requests += 1
            elif entry.kind == "file_end":
                sent[entry.values[0]] = entry.values[1]
            elif entry.kind == "hang":
                result.hangs.append(str(entry.values[0]))
    for number, size in sizes.items():
        path = received_directory(directory) / f"file{number}"
        outcome = sent.get(number, "open")
        if outcome == "ok" and not path.exists():
            result.disagreements.append(f"file {number} of {size} bytes was sent, but does not exist")
        if path.exists():
            result.posted_bytes += path.stat().st_size
            found = np.fromfile(path, np.uint8)
            wrong = check(found, scenario.seed, owner=FILES, message=number)
            if wrong or len(found) != size:
                result.wrong.append(f"file {number} of {size} bytes has {len(found)}: {wrong or 'none of them wrong'}")
