"""netns.pytest: used by a separate test suite, as by a user's."""

from __future__ import annotations

import shutil

import pytest

from netns.backends.kernel.capabilities import missing_netem
from netns.backends.uml import KERNEL
from netns.lab.state import recorded_labs

pytest_plugins = ["pytester"]

SUITE = """
import os
import subprocess

import pytest

from netns.netem.shape import Shape
from netns.topology.model import leaf_spine


@pytest.fixture(autouse=True)
def named(request):
    if "lab" in request.fixturenames:
        with open("labs", "a") as names:
            print(request.getfixturevalue("lab").name, file=names)


@pytest.mark.lab(leaf_spine(spines=1, shape=Shape(delay_us=100)))
def test_of_a_topology(lab, hosts):
    assert lab.topology.spines == ("spine1",)
    done = hosts["h1"].run(["ip", "-brief", "address"], check=True, capture_output=True, text=True)
    assert hosts["h1"].address in done.stdout
    assert hosts["h2"].netns == lab.netns("h2")


@pytest.mark.lab("mine.yaml")
def test_of_a_file(lab, hosts):
    assert len(hosts) == 4
    assert hosts["h4"].address6 == "fd53:5244:0:2::2"
    process = hosts["h4"].popen(["sleep", "100"])
    assert process.poll() is None
    process.terminate()
    process.wait()


@pytest.mark.needs_root
def test_without_a_marker(lab):
    assert len(lab.topology.spines) == 4


@pytest.mark.needs_uml
def test_uml():
    pass


@pytest.mark.needs_netem
def test_netem():
    subprocess.run(["tc", "qdisc", "show"], check=True)
"""

SHARED = """
import pytest

from netns.topology.model import leaf_spine

TOPOLOGY = leaf_spine(spines=1)  # for which `auto` is `kernel`
pytestmark = pytest.mark.lab(TOPOLOGY, backend="relay", scope="module")


def test_one(lab, hosts):
    assert (lab.backend, set(hosts)) == ("relay", {"h1", "h2"})
    test_one.lab = lab


def test_other(lab):
    assert lab is test_one.lab


@pytest.mark.lab(TOPOLOGY, backend="relay")
def test_own(lab):
    assert lab is not test_one.lab
"""
MISPLACED = """
import pytest


@pytest.mark.lab(scope="module")
def test_of_a_module_without_a_marker(lab):
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest('pytest_plugins = ["netns.pytest"]')
    pytester.makepyfile(test_suite=SUITE)
    (pytester.path / "mine.yaml").write_text("leaf_spine: {hosts_per_leaf: 2, spines: 2}\nipv6: true")
    return pytester


@pytest.mark.root
def test_fixtures_and_markers(suite: pytest.Pytester) -> None:
    done = suite.runpytest_subprocess("-rs", "--strict-markers")
    reasons = []
    if missing_netem() is not None:
        reasons.append("*needs_netem: this kernel has no netem (*); run it by srd-lab uml*")
    if shutil.which(KERNEL) is None:
        reasons.append("*needs_uml: linux.uml is not installed*")
    done.assert_outcomes(passed=5 - len(reasons), skipped=len(reasons))
    done.stdout.fnmatch_lines_random(reasons)
    named = (suite.path / "labs").read_text().split()  # other tests may have labs at the same time
    assert len(named) == 3
    assert not set(named) & set(recorded_labs()), "a lab was left"


@pytest.mark.root
def test_a_lab_for_a_module(pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["netns.pytest"]')
    pytester.makepyfile(test_shared=SHARED, test_misplaced=MISPLACED)
    done = pytester.runpytest_subprocess("--strict-markers")
    done.assert_outcomes(passed=3, errors=1)
    done.stdout.fnmatch_lines(["*is for a module's pytestmark, not for a test*"])


def test_require_needs__fails_instead_of_skipping(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    done = suite.runpytest_subprocess("-rs", "-k", "uml")
    done.assert_outcomes(skipped=1)
    done = suite.runpytest_subprocess("--require-needs", "-k", "uml")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*needs_uml: linux.uml is not installed*"])
