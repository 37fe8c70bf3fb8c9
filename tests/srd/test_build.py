"""srd.build: the reported build is right; and the compiled code has the sources' results, to the last bit."""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netns.base.build import BUILD
from scripts.installed import STAMP, digest
from srd.proto.wire import data
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """
import sys
from scripts.benches.case import CaseOptions
from scripts.benches.registry import CASES
from netns.base.build import BUILD
print(BUILD, file=sys.stderr)
for measured in CASES[sys.argv[1]].measure(CaseOptions(seed=7, seconds=0.1)):
    print(measured)
"""


def test_build__names_the_running_build() -> None:
    native = str(data.__file__).endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    assert (BUILD == "compiled") == native


def outcome(case: str, **environment: str) -> tuple[str, str]:
    """The result of a seed of a case in virtual time, and the build."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, case],
        capture_output=True, text=True, check=True, timeout=10 * PATIENCE_S,
        env={**inherited, "PYTHONSAFEPATH": "1", **environment},
    )  # fmt: skip
    return done.stdout, done.stderr.strip()


@pytest.mark.sources
@pytest.mark.installed
@pytest.mark.parametrize(
    "case", ["messages", *(pytest.param(case, marks=pytest.mark.long) for case in ("loss", "slow-path", "fair"))]
)
def test_build__the_same_seed_gives_the_same_result(case: str) -> None:
    """Thousands of decisions; one difference changes all later ones."""
    assert STAMP.read_text() == digest(), "the installed build is of other sources: make setup"
    of_sources, sources = outcome(case, PYTHONPATH=str(ROOT))
    of_installed, _ = outcome(case)
    assert sources == "interpreted"
    assert of_sources == of_installed
