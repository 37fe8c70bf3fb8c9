"""fio on an NBD export, and what it reports."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from scripts.harness.errors import BenchError
from scripts.harness.process import Process, ProcessGroup

BOUND_S = 300.0
"""Longest time of a job that does not say how long it lasts."""


@dataclass(frozen=True, slots=True)
class FioResult:
    read: dict[str, Any]
    write: dict[str, Any]
    error: int
    """Of the job: an errno, 0 for none."""
    failed: int
    """Requests that failed, and those whose data was wrong."""
    wrong: int
    """Blocks whose data was not what was last written."""

    @classmethod
    def of(cls, report: dict[str, Any], *, errors: str) -> Self:
        (job,) = report["jobs"]
        wrong = len(re.findall(r"^(?:verify|crc32c|fio): .*(?:bad|verify failed)", errors, re.MULTILINE))
        return cls(job["read"], job["write"], job["error"], job.get("total_err", 0), wrong)

    def iops(self, direction: str) -> float:
        return float(self._of(direction)["iops"])

    def bytes_per_s(self, direction: str) -> float:
        return float(self._of(direction)["bw_bytes"])

    def latency_us(self, direction: str, percent: float) -> float:
        """Return a percentile of the time from submission to completion."""
        return float(self._of(direction)["lat_ns"]["percentile"][f"{percent:.6f}"]) / 1e3

    def longest_ms(self) -> float:
        return max(float(each["lat_ns"]["max"]) for each in (self.read, self.write)) / 1e6

    def histogram(self, direction: str) -> Counter[int]:
        """Return how many requests took how many nanoseconds, in fio's bins."""
        return Counter({int(ns): count for ns, count in self._of(direction)["lat_ns"]["bins"].items()})

    def _of(self, direction: str) -> dict[str, Any]:
        return self.read if direction == "read" else self.write


class FioJob:
    """A job that runs; `ended` waits for its end."""

    def __init__(self, group: ProcessGroup, process: Process, report: Path, *, bound_s: float) -> None:
        self._group = group
        self._process = process
        self._report = report
        self._bound_s = bound_s

    def require_running(self) -> None:
        """Raise BenchError if it has ended, since it is to be disturbed."""
        self._group.turn(until=0.0)
        if self._process.status is not None:
            raise BenchError("fio ended before all faults had happened")

    def ended(self) -> FioResult:
        """Return what came of it, also if requests failed. Raises BenchError if there is no report."""
        self._group.turn_while(lambda: self._process.status is None, within_s=self._bound_s)
        self._group.stop(self._process)
        text = self._report.read_text(encoding="utf-8") if self._report.exists() else ""
        if "{" not in text:
            raise BenchError(f"fio: no report: {self._process.errors.strip()[-500:] or self._process.status}")
        return FioResult.of(json.loads(text[text.index("{") :]), errors=self._process.errors + text[: text.index("{")])


class Fio:
    """Starts jobs, whose files are in a directory."""

    def __init__(self, group: ProcessGroup, directory: Path) -> None:
        self._group = group
        self._directory = directory
        self._count = 0

    def start(self, uri: str, *options: str, before: Sequence[str] = (), bound_s: float = BOUND_S) -> FioJob:
        """Start a job; `before`: what precedes the command."""
        self._count += 1
        report = self._directory / f"{self._count}.json"
        argv = ["fio", "--name=job", "--ioengine=nbd", f"--uri={uri}", "--output-format=json+", f"--output={report}"]
        argv += [f"--aux-path={self._directory}", "--percentile_list=50:99:99.9"]
        argv += ["--lat_percentiles=1", "--clat_percentiles=0", *options]
        return FioJob(self._group, self._group.start("fio", [*before, *argv]), report, bound_s=bound_s)

    def run(self, uri: str, *options: str, before: Sequence[str] = (), bound_s: float = BOUND_S) -> FioResult:
        result = self.start(uri, *options, before=before, bound_s=bound_s).ended()
        if result.error:
            raise BenchError(f"fio {' '.join(options)}: failed with errno {result.error}")
        return result
