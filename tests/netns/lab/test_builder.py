"""netns.lab.builder: an interrupted `up` removes everything, or the next `up` does, by its record."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from netns.backends.kernel.netlink import run_tool
from netns.errors import BackendError
from netns.lab.builder import build, dismantle, exists, problems
from netns.lab.lab import Lab
from netns.lab.names import ETC_NETNS
from netns.lab.operations import AddNamespace, Operation, SetSysctl, StartRelay
from netns.lab.plan import namespace, plan
from netns.lab.state import ROOT, LabDirectory, LabState, locked
from netns.topology.model import leaf_spine, reference
from tests.patience import PATIENCE_S
from tests.programs import run_to_end

pytestmark = pytest.mark.root

# Build a lab, and stop before the step that the second argument numbers: by the signal that the third names. There are
# 8 namespaces, a batch inside them, the relay, and the routes.
INTERRUPTED = """
import os, signal, sys
import netns.lab.builder, netns.backends.relay.client
from netns.lab.lab import Lab
from netns.topology.model import reference

name, stop_before, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
applied = 0

def counting(function):
    def wrapper(*args, **kwargs):
        global applied
        if applied == stop_before:
            os.kill(os.getpid(), number)
        applied += 1
        return function(*args, **kwargs)
    return wrapper

for step in ("add_namespace", "apply", "start_relay"):
    setattr(netns.lab.builder, step, counting(getattr(netns.lab.builder, step)))
Lab.up(reference(name=name), backend="relay")
"""


def interrupted_up(name: str, *, stop_before: int, number: signal.Signals) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", INTERRUPTED, name, str(stop_before), str(int(number))]
    return run_to_end(command)


def left_of(name: str) -> list[str]:
    """Namespaces, files of names and record of a lab."""
    shown = (*Path("/run/netns").glob(f"{name}-*"), *ETC_NETNS.glob(f"{name}-*"), *ROOT.glob(name))
    return [path.name for path in shown]


@pytest.mark.parametrize(
    ("number", "stop_before"), [(signal.SIGHUP, 0), (signal.SIGTERM, 3), (signal.SIGINT, 9), (signal.SIGTERM, 10)]
)
def test_build__a_signal_removes_everything(lab_name: str, number: signal.Signals, stop_before: int) -> None:
    done = interrupted_up(lab_name, stop_before=stop_before, number=number)
    wanted = -signal.SIGINT if number == signal.SIGINT else 128 + number
    assert done.returncode == wanted, done.stderr
    assert left_of(lab_name) == []


@pytest.mark.parametrize("stop_before", [5, 8, 9, 10])
def test_build__a_crash_on_the_way_is_cleared_by_the_next(lab_name: str, stop_before: int) -> None:
    done = interrupted_up(lab_name, stop_before=stop_before, number=signal.SIGKILL)
    assert done.returncode == -signal.SIGKILL
    recorded = LabDirectory(lab_name).read()
    assert recorded is not None, "the record comes before the thing"
    assert recorded.phase == "coming up"
    made = [path.name for path in Path("/run/netns").glob(f"{lab_name}-*")]
    assert set(made) <= set(recorded.namespaces)
    assert len(made) == min(stop_before, 8)
    with Lab.up(reference(name=lab_name), backend="relay") as lab:
        assert lab.status()["problems"] == []
    assert left_of(lab_name) == []


def test_dismantle__skips_missing_objects(lab_name: str) -> None:
    Lab.up(leaf_spine(name=lab_name))
    run_tool("ip", "netns", "delete", f"{lab_name}-spine2")
    state = LabDirectory(lab_name).read()
    assert state is not None
    assert problems(state) == [f"the namespace {lab_name}-spine2 is gone"]
    Lab.find(lab_name).down()
    assert left_of(lab_name) == []


def test_build__a_failing_step_is_named_and_undone(lab_name: str) -> None:
    topology = leaf_spine(name=lab_name, spines=1)
    steps: list[Operation] = list(plan(topology, "kernel"))
    steps.append(SetSysctl(namespace(topology, "leaf1"), "net.ipv4.no_such_thing", 1))
    with locked(), pytest.raises(BackendError, match=r"^sysctl .*-leaf1 net.ipv4.no_such_thing=1: No such file"):
        build(LabDirectory(lab_name), LabState(topology, "kernel", "test"), steps)
    assert left_of(lab_name) == []


def test_build__relay_start_failure_bad_flow(lab_name: str) -> None:
    topology = reference(name=lab_name)
    relay = next(step for step in plan(topology, "relay") if isinstance(step, StartRelay))
    steps: list[Operation] = [AddNamespace(namespace(topology, "leaf1")), relay]
    with locked(), pytest.raises(BackendError, match=r"there is no interface spine1"):
        build(LabDirectory(lab_name), LabState(topology, "relay", "test"), steps)
    assert left_of(lab_name) == []


def test_build__notes_missing_kernel_features(lab_name: str) -> None:
    topology = leaf_spine(name=lab_name)
    netns = namespace(topology, "leaf1")
    steps: list[Operation] = [AddNamespace(netns)]
    steps += (SetSysctl(netns, "net.ipv4.too_new", value, optional=True) for value in (1, 2))
    directory = LabDirectory(lab_name)
    with locked():
        state = build(directory, LabState(topology, "kernel", "test"), steps)
        assert state.notes == ("this kernel has no net.ipv4.too_new",)
        assert exists(netns)
        dismantle(directory, state)
    assert not exists(netns)


def test_up__waits_for_the_lock(lab_name: str, another_name: Callable[[], str]) -> None:
    """Two at once are serialised: one lock for building and removing."""
    names = [lab_name, another_name()]
    program = (
        "import sys; from netns.lab.lab import Lab; from netns.topology.model import leaf_spine\n"
        "Lab.up(leaf_spine(name=sys.argv[1]))"
    )
    builders = [subprocess.Popen([sys.executable, "-c", program, name]) for name in names]
    assert [builder.wait(timeout=PATIENCE_S) for builder in builders] == [0, 0]
    for name in names:
        assert Lab.find(name).status()["problems"] == []
        Lab.find(name).down()
