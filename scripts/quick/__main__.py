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
from pathlib import Path
from typing import Any, Final

from scripts.quick.budget import STOP_AT, TALLY
from scripts.quick.selection import changed_files, select, texts_of_tests

ROOT: Final = Path(__file__).resolve().parent.parent.parent
CACHE: Final = ROOT / f".quick-{os.getuid()}"
"""Of this user: make test may have left other caches that belong to root."""
STOP_AFTER_S: Final = 20.0
"""From the start to the last start of a test: the longest take five to ten seconds, and half a minute is for all."""
TEST_S: Final = 30
"""The longest that a test may take, also on a slow machine: one that hangs must not take ten minutes."""
IDLE_S: Final = 3600
"""The daemon of types ends after an hour in which nobody asked: it holds 100 to 300 MB."""
QUICK: Final = "(sources or not compiled) and not (installed or long or netem or root)"
Done = tuple[int, str]
"""Exit status and output."""


def main() -> int:
    """Run all checks at a time; print a line for each when it ends, and its output if it failed."""
    started = time.monotonic()
    try:
        changed = changed_files(ROOT, os.environ.get("BASE"))
    except subprocess.CalledProcessError as error:
        print(f"quick: git cannot say what changed: {error.stderr.strip()}", file=sys.stderr)
        return 2
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="srd-quick-") as folder:
        tally = Path(folder, "tally.json")
        tally.write_text('{"run": 0, "excluded": 0, "late": {}}')
        budget = {STOP_AT: str(started + STOP_AFTER_S), TALLY: str(tally)}
        failed = _run_all(
            {
                "format": lambda: _run("ruff", "format", "--check", "--quiet", "."),
                "lint": lambda: _run("ruff", "check", "--quiet", "."),
                "types": _types,
                "tests": lambda: _tests(select(changed, texts_of_tests(ROOT)), budget),
            }
        )
        counts = json.loads(tally.read_text())
    print(summary(counts, seconds=time.monotonic() - started, failed=failed, files=len(changed)))
    return 1 if failed else 0


def summary(counts: Mapping[str, Any], *, seconds: float, failed: Sequence[str], files: int) -> str:
    """Return the last line: what was checked, what failed, what did not run."""
    parts = [f"quick: {seconds:.0f} s: format, lint, types, {counts['run']} tests of {files} changed files"]
    if failed:
        parts.append(f"failed: {', '.join(failed)}")
    if counts["late"]:
        parts.append(f"no time left for {sum(counts['late'].values())} of {', '.join(sorted(counts['late']))}")
    if counts["excluded"]:
        parts.append(f"left to make test: {counts['excluded']} that need root, a build or longer")
    return "; ".join(parts)


def _run_all(checks: Mapping[str, Callable[[], Done]]) -> list[str]:
    started = time.monotonic()
    failed = []
    with ThreadPoolExecutor(len(checks)) as pool:
        running = {pool.submit(check): name for name, check in checks.items()}
        for future in as_completed(running):
            (status, output), name = future.result(), running[future]
            if status:
                failed.append(name)
                print(output.rstrip())
            print(f"{name}: {'failed' if status else 'ok'}, {time.monotonic() - started:.1f} s", flush=True)
    return failed


def _run(program: str, *arguments: str, **environment: str) -> Done:
    caches = {"RUFF_CACHE_DIR": str(CACHE / "ruff"), "HYPOTHESIS_STORAGE_DIRECTORY": str(CACHE / "hypothesis")}
    done = subprocess.run(
        [ROOT / ".venv" / "bin" / program, *arguments], cwd=ROOT, env={**os.environ, **caches, **environment},
        check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout


def _types() -> Done:
    """Ask the daemon. Without one, mypy answers, and leaves the cache from which a daemon starts within a second.

    A daemon never reports errors that the cache knows of (mypy 2.4), so one starts from a cache without errors only.
    """
    cache = ("--cache-dir", str(CACHE / "mypy"))
    daemon = ("dmypy", "--status-file", str(CACHE / "dmypy.json"))
    if _run(*daemon, "status")[0]:  # none, or one that died
        done = _run("mypy", *cache, "--cache-fine-grained")
        if done[0]:
            return done
    return _run(*daemon, "run", "--timeout", str(IDLE_S), "--", *cache, "--use-fine-grained-cache")


def _tests(files: Sequence[str], budget: Mapping[str, str]) -> Done:
    """Run them interpreted, in their order: one at a time is handed to a worker."""
    workers = str(min(os.cpu_count() or 1, 4))
    return _run(
        "python", "-m", "pytest", "-q", "-p", "scripts.quick.budget", "-p", "no:cacheprovider", "-m", QUICK, "-r", "fE",
        "-n", workers, "--dist", "load", "--maxschedchunk", "1", "--timeout", str(TEST_S), *files, **budget,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
