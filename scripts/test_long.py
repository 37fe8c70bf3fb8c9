#!/usr/bin/env python3
"""scripts/test_long.py [STAGE ...]: what `make test-long` runs; writes what came of it to docs/benchmarks/README.md.

All stages run, whatever failed before. The table is written when all ran: of some, nothing is written.
With --age: say when the revision in the table is more than 200 commits old, as `make test` does.

Exit status: 0: all passed; 1: a stage failed; 2: wrong usage.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON: Final = str(ROOT / ".venv" / "bin" / "python")
PAGE: Final = ROOT / "docs" / "benchmarks" / "README.md"
REPORTS: Final = ROOT / "build" / "test-long"
BEGIN: Final = "<!-- Written by scripts/test_long.py -->\n"
END: Final = "<!-- End -->\n"
OLD_COMMITS: Final = 200
"""Beyond this, what the table says is hardly about this code any more."""
INSTALLED: Final = {"PYTHONPATH": None, "PYTHONSAFEPATH": "1"}
"""Changes of the environment for the compiled build; the tests start processes that inherit them."""
WORKERS: Final = ("-n", "4", "--dist", "worksteal", "-p", "tests.time_left")


@dataclass(frozen=True, slots=True)
class LongStage:
    """A command; `is_pytest`: it takes pytest's options, and reports its tests one by one."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str | None] = field(default_factory=dict)
    is_pytest: bool = False


@dataclass(frozen=True, slots=True)
class StageResult:
    """What came of a stage; a stage that is no pytest counts as one test."""

    stage: str
    seconds: float
    failed: int
    passed: int
    skipped: int = 0

    def row(self) -> str:
        return f"| {self.stage} | {self.passed:,} | {self.failed} | {self.skipped} | {self.seconds:.0f} |\n"


def pytest(name: str, *options: str, environment: Mapping[str, str | None] | None = None) -> LongStage:
    argv = (PYTHON, "-m", "pytest", "-q", "--hypothesis-profile=long", *WORKERS, *options)
    return LongStage(name, argv, environment or {}, is_pytest=True)


PURE: Final = tuple(
    f"tests/{path}"
    for path in (
        "devmem",
        "netns/backends/kernel/test_netem_options.py",
        "netns/backends/virtual",
        "netns/faults/test_schedule.py",
        "netns/governance",
        "netns/lab/test_plan.py",
        "netns/netem",
        "netns/placement",
        "netns/base/test_token_bucket.py",
        "netns/base/test_units.py",
        "netns/topology",
        "srd/proto",
        "srd/secure",
    )
)
"""The tests of what scripts/coverage_floor.py checks: alone traced for coverage, which doubles their time."""
INTERPRETED: Final = ("-m", "sources or not compiled")
STAGES: Final = (
    pytest("interpreted, traced for coverage", *INTERPRETED, "--cov", "--cov-report=", *PURE),
    LongStage("coverage floors", (PYTHON, "scripts/coverage_floor.py")),
    pytest("interpreted, the others", *INTERPRETED, *(f"--ignore={path}" for path in PURE)),
    pytest("compiled", "-o", "pythonpath=", "-m", "not sources", environment=INSTALLED),
    LongStage("benches in virtual time", (PYTHON, "scripts/check_benches.py", "--long"), INSTALLED),
    LongStage("weight", (PYTHON, "scripts/check_weight.py"), INSTALLED),
    LongStage("torch", ("make", "test-torch")),
)


def run(stage: LongStage) -> StageResult:
    """Run a stage with its output on the terminal."""
    click.secho(f"test-long: {stage.name}: {' '.join(stage.command)}", bold=True)
    report = REPORTS / f"{re.sub(r'[^a-z]+', '-', stage.name)}.xml"
    report.unlink(missing_ok=True)
    changed = {name: value for name, value in (os.environ | stage.environment).items() if value is not None}
    began = time.monotonic()
    status = subprocess.run(
        [*stage.command, *([f"--junitxml={report}"] if stage.is_pytest else [])], cwd=ROOT, env=changed, check=False
    ).returncode
    seconds = time.monotonic() - began
    if not stage.is_pytest or not report.exists():
        return StageResult(stage.name, seconds, failed=int(status != 0), passed=int(status == 0))
    return counts(stage.name, ET.parse(report).getroot(), seconds=seconds, status=status)  # noqa: S314 - pytest's own


def counts(name: str, report: ET.Element, *, seconds: float, status: int) -> StageResult:
    """Return what a report of pytest counts. A status that no test explains is a failure, too."""
    (suite,) = report.iter("testsuite")
    tests, failures, errors, skipped = (int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped"))
    failed = failures + errors
    return StageResult(
        name, seconds, failed=max(failed, int(status != 0)), passed=tests - failed - skipped, skipped=skipped
    )


def table(results: Sequence[StageResult], *, revision: str, day: str) -> str:
    total = StageResult(
        "all",
        sum(each.seconds for each in results),
        failed=sum(each.failed for each in results),
        passed=sum(each.passed for each in results),
        skipped=sum(each.skipped for each in results),
    )
    rows = "".join(each.row() for each in (*results, total))
    return (
        f"`make test-long` at {revision}, {day}:\n\n"
        f"| stage | passed | failed | skipped | seconds |\n|---|---|---|---|---|\n{rows}"
    )


def replaced(page: str, section: str) -> str:
    """Return the page with this section between its two marks. Raises ValueError if it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE}: no lines {BEGIN.strip()} and {END.strip()}")
    return before + begin + section + end + after


def git(*arguments: str) -> str:
    """Return what git says. Raises CalledProcessError."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def age(page: str) -> str | None:
    """Return why `make test-long` should run again; None if it need not."""
    found = re.search(r"^`make test-long` at (\w+)", page, re.MULTILINE)
    if found is None:
        return f"{PAGE.relative_to(ROOT)} has no run of make test-long; run it"
    try:
        commits = int(git("rev-list", "--count", f"{found[1]}..HEAD"))
    except (subprocess.CalledProcessError, FileNotFoundError):
        return f"git does not know {found[1]}, the revision of the last make test-long; run it"
    return f"make test-long ran {commits} commits ago, at {found[1]}; run it" if commits > OLD_COMMITS else None


@click.command()
@click.argument("names", metavar="[STAGE]...", nargs=-1, type=click.Choice([stage.name for stage in STAGES]))
@click.option("--age", "only_age", is_flag=True, help="Only say when the last run is more than 200 commits old.")
def main(*, names: tuple[str, ...], only_age: bool) -> None:
    """Run every STAGE (default: all) and write what came of them to docs/benchmarks/README.md."""
    if only_age:
        reason = age(PAGE.read_text())
        click.echo(f"test-long: {reason}" if reason else "test-long: ran within the last 200 commits")
        return
    REPORTS.mkdir(parents=True, exist_ok=True)
    revision = git("rev-parse", "--short", "HEAD") + (" with changes" if git("status", "--porcelain") else "")
    results = [run(stage) for stage in STAGES if stage.name in (names or [each.name for each in STAGES])]
    section = table(results, revision=revision, day=f"{datetime.now(UTC):%Y-%m-%d}")
    click.echo(section)
    if not names:
        PAGE.write_text(replaced(PAGE.read_text(), section))
    sys.exit(any(each.failed for each in results))


if __name__ == "__main__":
    main()
