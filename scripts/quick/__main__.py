"""make quick: format, lint, types, and the tests of what changed against the main branch, in half a minute.

BASE names another branch or commit than main. Tests that need root, a build or longer are left to make test. When
there is no time for all that the change asks for, the nearest to it run, and the last line says what did not.

Exit status: 0: nothing that ran failed; 1: something did; 2: git cannot say what changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from scripts.quick.budget import STOP_AT, TALLY
from scripts.quick.selection import changed_files, select, texts_of_tests

ROOT: Final = Path(__file__).resolve().parent.parent.parent
BIN: Final = ROOT / ".venv" / "bin"
CACHE: Final = ROOT / f".quick-{os.getuid()}"
"""Of this user: make test may have left other caches that belong to root."""
STOP_AFTER_S: Final = 24.0
"""From the start to the last start of a test: the longest take some seconds, and half a minute is for all."""
TEST_S: Final = 15
"""The longest that a test may take: slower ones are marked `long`, and one that hangs must not take ten minutes."""
IDLE_S: Final = 3600
"""The daemon of types ends after an hour in which nobody asked: it holds 100 to 300 MB."""
WORKERS: Final = min(os.cpu_count() or 1, 4)
NAMED: Final = 3
"""Folders of tests that did not run are named up to this many, those with the most first."""
QUICK: Final = "(sources or not compiled) and not (installed or long or netem or root)"


@dataclass(frozen=True, slots=True)
class Done:
    """How one of the checks ended."""

    status: int
    output: str
    seconds: float = 0.0


def main() -> int:
    """Run all checks at a time; print a line for each when it ends, and its output if it failed."""
    started = time.monotonic()
    try:
        changed = changed_files(ROOT, os.environ.get("BASE"))
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        print(f"quick: git cannot say what changed: {reason.strip()}", file=sys.stderr)
        return 2
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="srd-quick-") as folder:
        tally = Path(folder, "tally.json")
        budget = {STOP_AT: str(started + STOP_AFTER_S), TALLY: str(tally)}
        failed = _run_all(
            {
                "format": lambda: _run("ruff", "format", "--check", "--quiet", "."),
                "lint": lambda: _run("ruff", "check", "--quiet", "."),
                "types": _types,
                "tests": lambda: _tests(select(changed, texts_of_tests(ROOT)), budget),
            }
        )
        counts = json.loads(tally.read_text()) if tally.exists() else {"run": 0, "deselected": 0, "late": {}}
    print(summary(time.monotonic() - started, counts, failed=failed, files=len(changed)))
    return 1 if failed else 0


def summary(seconds: float, counts: Mapping[str, Any], *, failed: Sequence[str], files: int) -> str:
    """Return the last line: what was checked, what failed, what did not run."""
    late = sorted(counts["late"].items(), key=lambda each: -each[1])
    left_out = [f"{count} of {folder}" for folder, count in late[:NAMED]]
    if late[NAMED:]:
        left_out.append(f"{sum(count for _, count in late[NAMED:])} of {len(late[NAMED:])} other folders")
    if left_out:
        left_out[-1] += " for want of time"
    if counts["deselected"]:
        left_out.append(f"{counts['deselected']} that need root, a build or longer")
    parts = [f"quick: {seconds:.0f} s: format, lint, types, {counts['run']} tests of {files} changed files"]
    if failed:
        parts.append(f"failed: {', '.join(failed)}")
    if left_out:
        parts.append(f"not run: {', '.join(left_out)}")
    return "; ".join(parts)


def _run_all(checks: Mapping[str, Callable[[], Done]]) -> list[str]:
    """Return the names of those that failed."""
    failed = []
    with ThreadPoolExecutor(len(checks)) as pool:
        running = {pool.submit(_timed, check): name for name, check in checks.items()}
        for future in as_completed(running):
            done, name = future.result(), running[future]
            if done.status:
                failed.append(name)
                print(done.output.rstrip())
            print(f"{name}: {'failed' if done.status else 'ok'}, {done.seconds:.1f} s", flush=True)
    return failed


def _timed(check: Callable[[], Done]) -> Done:
    started = time.monotonic()
    return replace(check(), seconds=time.monotonic() - started)


def _run(program: str, *arguments: str, **environment: str) -> Done:
    """Run a program of .venv in the checkout."""
    caches = {"RUFF_CACHE_DIR": str(CACHE / "ruff"), "HYPOTHESIS_STORAGE_DIRECTORY": str(CACHE / "hypothesis")}
    done = subprocess.run(
        [BIN / program, *arguments], cwd=ROOT, env={**os.environ, **caches, **environment}, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return Done(done.returncode, done.stdout)


def _types() -> Done:
    """Ask the daemon. Without one, mypy answers, and leaves the cache from which a daemon starts within a second.

    A daemon never reports errors that the cache knows of (mypy 2.4), so one starts from a cache without errors only.
    When it dies, or cannot parse a file (status 2), mypy answers, too.
    """
    cache = ("--cache-dir", str(CACHE / "mypy"))
    daemon = ("dmypy", "--status-file", str(CACHE / "dmypy.json"))
    if _run(*daemon, "status").status:
        done = _run("mypy", *cache, "--cache-fine-grained")
        if done.status:
            return done
    done = _run(*daemon, "run", "--timeout", str(IDLE_S), "--", *cache, "--use-fine-grained-cache")
    if done.status > 1:
        _run(*daemon, "kill")
        done = _run("mypy", *cache, "--cache-fine-grained")
    return done


def _tests(files: Sequence[str], budget: Mapping[str, str]) -> Done:
    """Run them interpreted, in their order: one at a time is handed to a worker."""
    return _run(
        "python", "-m", "pytest", "-q", "-p", "scripts.quick.budget", "-p", "no:cacheprovider", "-m", QUICK, "-r", "fE",
        "-n", str(WORKERS), "--dist", "load", "--maxschedchunk", "1", "--timeout", str(TEST_S), *files, **budget,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
