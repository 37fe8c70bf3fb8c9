"""Which code the tests run: the checkout's sources, in this process and in its child processes.

    PYTHONSAFEPATH=1 .venv/bin/python -m pytest -o pythonpath= -m "not sources" tests/srd

runs the same tests on the compiled build installed in .venv. Tests marked `sources` replace or read parts of the code.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # otherwise NumPy's unused threads spin in every process

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import srd

pytest_plugins = ["netns.pytest"]

# The time of an example depends on the machine: a limit would fail at random.
# `make test` says the same each time; `make test-long` draws other examples each time.
settings.register_profile("long", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("project", settings.get_profile("long"), derandomize=True)
settings.load_profile("project")

# A shell that is not interactive ignores SIGINT in what it runs in the background, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
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


def pytest_configure() -> None:
    """Switch garbage collection off until the tests are collected, as nothing of them is garbage: half of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Have no later garbage collection look at the thousands of collected tests."""
    gc.freeze()
    gc.enable()


SIMULATED = tuple(ROOT / "tests" / path for path in ("srd/proto", "srd/secure"))
"""Tests that simulate much, all of which make test runs compiled, too: interpreted they run with their first seed."""


@pytest.hookimpl(tryfirst=True)  # before the selection by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run simulations with more seeds compiled only, and in make test-long."""
    for item in items:
        if _has_later_seed(item) and _is_simulated(item.path):
            item.add_marker(pytest.mark.compiled)
            item.add_marker(pytest.mark.long)


def _has_later_seed(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and hasattr(item, "callspec") and item.callspec.indices.get("seed", 0) > 0


def _is_simulated(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in SIMULATED)
