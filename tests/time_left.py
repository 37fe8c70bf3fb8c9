"""A plugin of pytest: in place of dots, how far the tests are and the time left; what fails is named at once.

    python -m pytest -p tests.time_left -n 4 tests

The time left follows from what the tests of each file took, now or the last time, which pytest's cache keeps.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from typing import Final

import pytest

from netns.base.progress import Estimate, Progress

PAST: Final = "time_left/seconds"
"""Of pytest's cache: what a test of each file took the last time."""


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # xdist's: a worker's tests are shown by who has started it
        config.pluginmanager.register(_Shown(config), "time left, shown")


class _Shown:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._cache: pytest.Cache | None = getattr(config, "cache", None)  # none with -p no:cacheprovider
        self._stream = os.fdopen(os.dup(2), "w")  # not what captures the tests' own output
        self._progress: Progress | None = None
        self._took_s: dict[str, float] = {}

    def _begin(self, tests: Iterable[str]) -> None:
        if self._progress is None:
            past = Estimate(None if self._cache is None else self._cache.get(PAST, {}))
            workers = getattr(self._config.option, "numprocesses", None) or 1
            self._progress = Progress("tests", map(_file, tests), estimate=past, workers=workers, stream=self._stream)
            self._progress.__enter__()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items and not session.config.option.collectonly:
            self._begin(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._begin(ids)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, tuple[str, str, object], tuple[str, str, object]]:
        category, letter, word = yield
        return (category, letter, word) if self._progress is None else (category, "", "")  # no dot

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._progress is None:
            return
        self._took_s[report.nodeid] = self._took_s.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self._progress.say(f"failed: {report.nodeid}")
        if report.when == "teardown":
            self._progress.end(_file(report.nodeid), took_s=self._took_s.pop(report.nodeid))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            if self._cache is not None:
                self._cache.set(PAST, self._progress.estimate.means())
            self._progress = None  # the summary has pytest's words again

    def pytest_unconfigure(self) -> None:
        self._stream.close()


def _file(test: str) -> str:
    return test.partition("::")[0]
