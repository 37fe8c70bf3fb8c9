"""Which code the tests run: the checkout's sources, in this process and in its child processes.

    PYTHONSAFEPATH=1 .venv/bin/python -m pytest -o pythonpath= -m "not sources" tests/srd

runs the same tests on the compiled build installed in .venv. Tests marked `sources` replace or read parts of the code.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

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
    "netns/test_units.py",
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


@pytest.fixture(scope="session", autouse=True)
def home() -> Iterator[None]:
    """Have the tests use keys and known hosts of their own: not those of who runs the tests.

    Not in pytest's directories, which are closed to a card that runs as a user of its own.
    """
    with tempfile.TemporaryDirectory(prefix="srd-test-home-") as path:
        os.environ["SRD_HOME"] = path
        yield


SIMULATED = ("srd/proto", "srd/secure")
"""Tests that simulate much, all of which make test runs compiled, too: interpreted they run with their first seed."""


@pytest.hookimpl(tryfirst=True)  # before the selection by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Trace only the tests of pure code for coverage, and run simulations with more seeds compiled only."""
    pure = tuple(ROOT / "tests" / path for path in PURE)
    simulated = tuple(ROOT / "tests" / path for path in SIMULATED)
    for item in items:
        if not any(item.path.is_relative_to(path) for path in pure):
            item.add_marker(pytest.mark.no_cover)
        is_simulated = any(item.path.is_relative_to(path) for path in simulated)
        if is_simulated and _has_later_seed(item) and item.get_closest_marker("sources") is None:
            item.add_marker(pytest.mark.compiled)


def _has_later_seed(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and hasattr(item, "callspec") and item.callspec.indices.get("seed", 0) > 0
