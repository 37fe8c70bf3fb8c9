"""Fixtures for test suites that need a network: labs that are up during a test.

    # conftest.py
    pytest_plugins = ["netns.pytest"]

    # test_transfer.py
    @pytest.mark.lab(leaf_spine(leaves=2, spines=4, shape=Shape(delay_us=500)))
    def test_transfer(lab, hosts):
        hosts["h2"].popen(["iperf3", "-s", "-1"])
        hosts["h1"].run(["iperf3", "-c", hosts["h2"].address], check=True)

`lab` is a `netns.lab.lab.Lab`, of the topology in the marker: a Topology, or the path of a file, relative to the
test's; without a marker the reference fabric. Its name is replaced by a unique one. `hosts` are its hosts by name.
Processes that a test leaves running in the lab are ended with it. `backend=` in the marker is that of `Lab.up`.

Building a lab takes a second. With `pytestmark = pytest.mark.lab(..., scope="module")` the tests of a module share one,
which they leave as they have found it.

Markers, for the requirements of a test: `needs_root`, `needs_netem` (in the running kernel: User-Mode Linux has it, see
`srd-lab uml`), `needs_uml`. A test whose requirement is not met is skipped, with the reason; with --require-needs it
fails, which is intended for continuous integration.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from netns.backends.kernel.capabilities import missing_netem
from netns.backends.uml import KERNEL
from netns.lab.lab import Lab
from netns.topology.file import read_topology
from netns.topology.model import Topology, reference

_numbers: Final = count()


@dataclass(frozen=True, slots=True)
class Host:
    """A host of a lab, with methods to run commands in it."""

    lab: Lab
    name: str

    @property
    def address(self) -> str:
        """Its main address, reached over all spines."""
        return self.lab.address(self.name)

    @property
    def address6(self) -> str:
        """The same for IPv6; TopologyError if the lab has none."""
        return self.lab.address(self.name, version=6)

    @property
    def netns(self) -> str:
        """Its namespace."""
        return self.lab.netns(self.name)

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        """Call `subprocess.run` inside the host."""
        return subprocess.run(self.lab.command(self.name, command), **options)  # noqa: PLW1510 - the caller's choice

    def popen(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Call `subprocess.Popen` inside the host."""
        return subprocess.Popen(self.lab.command(self.name, command), **options)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --require-needs, for continuous integration."""
    parser.addoption(
        "--require-needs", action="store_true", help="Fail tests whose needs are not met; do not skip them."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for line in (
        "lab(topology, backend, scope): what the fixture `lab` is built from: a Topology, or the path of a file",
        "needs_root: builds network namespaces",
        "needs_netem: needs a kernel with netem",
        "needs_uml: boots User-Mode Linux",
    ):
        config.addinivalue_line("markers", line)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or fail, tests whose requirements are not met."""
    for name, unmet in NEEDS.items():
        if item.get_closest_marker(name) is not None and (reason := unmet()) is not None:
            if item.config.getoption("--require-needs"):
                pytest.fail(f"{name}: {reason}", pytrace=False)
            pytest.skip(f"{name}: {reason}")


def _no_root() -> str | None:
    return None if os.geteuid() == 0 else "network namespaces are made by root"


def _no_netem() -> str | None:
    missing = _no_root() or missing_netem()
    return None if missing is None else f"this kernel has no netem ({missing}); run it by srd-lab uml -- pytest ..."


def _no_uml() -> str | None:
    return None if shutil.which(KERNEL) else f"{KERNEL} is not installed; it is in the package user-mode-linux"


NEEDS: Final = {"needs_root": _no_root, "needs_netem": _no_netem, "needs_uml": _no_uml}


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A new lab for the test, or the one of its module."""
    marker = request.node.get_closest_marker("lab")
    if marker is not None and marker.kwargs.get("scope") == "module":
        yield request.getfixturevalue("_module_lab")
    else:
        with _up(request, marker=marker) as made:
            yield made


@pytest.fixture(scope="module")
def _module_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    marker = request.node.get_closest_marker("lab")
    if marker is None:
        raise pytest.UsageError('@pytest.mark.lab(scope="module") is for a module\'s pytestmark, not for a test')
    with _up(request, marker=marker) as made:
        yield made


@pytest.fixture
def hosts(lab: Lab) -> Mapping[str, Host]:
    """The lab's hosts by name."""
    return {name: Host(lab, name) for name in lab.topology.hosts}


@contextmanager
def _up(request: pytest.FixtureRequest, *, marker: pytest.Mark | None) -> Iterator[Lab]:
    if (reason := _no_root()) is not None:
        pytest.skip(reason)
    arguments, options = (marker.args, marker.kwargs) if marker is not None else ((), {})
    given = arguments[0] if arguments else reference()
    topology = given if isinstance(given, Topology) else read_topology(Path(request.path).parent / given)
    name = f"pytest{os.getpid()}-{next(_numbers)}"
    with Lab.up(replace(topology, name=name), backend=options.get("backend", "auto")) as made:
        yield made
