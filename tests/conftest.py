"""Which code the tests run: the checkout's sources, in this process and in its child processes.

    PYTHONSAFEPATH=1 .venv/bin/python -m pytest -o pythonpath= -m "not sources" tests/srd

runs the same tests on the compiled build installed in .venv. Tests marked `sources` replace or read parts of the code.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # otherwise NumPy's unused threads spin in every process

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import srd

# The time of an example depends on the machine: a limit would fail at random.
settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")

ROOT = Path(__file__).resolve().parent.parent
PURE = (
    "srd/proto",
    "srd/secure",
    "devmem",
    "netns/netem",
    "netns/topology",
    "netns/placement",
    "netns/lab",
    "netns/faults",
    "netns/backends",
)
"""Tests traced for coverage, which doubles their time: those of the code that scripts/coverage_floor.py checks."""

if Path(srd.__file__).is_relative_to(ROOT / "srd"):
    os.environ["PYTHONPATH"] = str(ROOT)

# The keys and known hosts of the user "test": not those of who runs the tests.
os.environ["SRD_HOME"] = tempfile.mkdtemp(prefix="srd-test-home-")
atexit.register(shutil.rmtree, os.environ["SRD_HOME"], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Trace only the tests of pure code for coverage."""
    pure = tuple(ROOT / "tests" / path for path in PURE)
    for item in items:
        if not any(item.path.is_relative_to(path) for path in pure):
            item.add_marker(pytest.mark.no_cover)
